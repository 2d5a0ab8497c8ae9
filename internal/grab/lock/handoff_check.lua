-- Looks after a queue, for some of those in it: passes on a lease that ran out.
-- ARGV: 1 TTL of the next lease, ms
--       2 for how long the queue is kept, ms
--       3 … names
-- Reply: the holder, or false; then the number of each name in the queue, or false.
local holder = call('GET', KEYS[1])
if not holder then
  holder = pass(math.huge, ARGV[1]) or false
  if not holder then call('DEL', KEYS[1]) end
end
call('PEXPIRE', KEYS[2], ARGV[2])
local reply = call('ZMSCORE', KEYS[2], unpack(ARGV, 3))
table.insert(reply, 1, holder)
return reply
