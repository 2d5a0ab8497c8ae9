-- Takes the lease, or a place in the queue. This is the short way; handoff_queue.lua goes on
-- where it does not end.
-- KEYS: as in handoff_numbers.lua
-- ARGV: 1 name
--       2 TTL of the lease, ms
--       3 with it: this name may be in Redis already, and had the place of this number, or 0
-- waits: whether to queue
-- Reply: > 0 the lease is ours, this is its fence; < 0 queued, minus the number drawn; 0 busy.
local taken = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local missing = taken and redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 -- others are there all the same
if taken and not missing then
  local n = redis.call('INCR', KEYS[4])
  if n > 1000000 then return n end
end
