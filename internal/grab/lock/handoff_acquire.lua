-- Takes the lease, or a place in the queue. This is the short way; handoff_queue.lua goes on
-- where it does not end.
-- KEYS: as in handoff_numbers.lua
-- ARGV: 1 name
--       2 TTL of the lease, ms
--       3 with it: this name may be in Redis already, and had the place of this number, or 0
-- waits: whether to queue
-- Reply: > 0 the lease is ours, this is its fence; < 0 queued, minus the number drawn; 0 busy.
local taken = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0
if taken then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  local n = redis.call('INCR', KEYS[4])
  if n > first then return n end
end
