-- Undoes whatever a name has in the queue or of the lease.
-- ARGV: 1 name
-- Reply: 1 it held the lease, 0 it did not.
call('ZREM', KEYS[2], ARGV[1])
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if not pass(math.huge) then call('DEL', KEYS[1]) end
return 1
