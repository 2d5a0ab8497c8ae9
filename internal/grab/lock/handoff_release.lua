-- Gives the lease back. This is the short way, when nobody waits; handoff_next.lua goes on
-- where it does not end.
-- KEYS: as in handoff_numbers.lua
-- ARGV: 1 the name that the lease has
--       2 the holder's fence
--       3 … with them: names that had the lease in between, and are in the queue yet
-- Reply: 1 done; 0 the lease was not the holder's any more; done, and the next is a waiter of the
-- same process: the wake-up for it, which is not published.
if ARGV[3] then redis.call('ZREM', KEYS[2], unpack(ARGV, 3)) end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local first = redis.call('ZPOPMIN', KEYS[2])
if not first[1] then return redis.call('DEL', KEYS[1]) end
