-- Hands the lease to the next.
-- ARGV: 1 the name that the lease has
--       2 the holder's fence
--       3 … with them: names that had the lease in between, and are in the queue yet
-- Reply: 1 nobody has it now; 2 the next has it; 0 it was not the holder's any more; the next has it,
-- and is a waiter of the same process: the wake-up for it, which is not published.
if ARGV[3] then call('ZREM', KEYS[3], unpack(ARGV, 3)) end
if holder(false) ~= ARGV[1] then return 0 end
local next, wakeup = pass(tonumber(ARGV[2]), nil, ARGV[1])
if next then return wakeup or 2 end
free()
return 1
