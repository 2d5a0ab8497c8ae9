-- Takes a lock and issues a fencing token in one step.
--
-- KEYS[1]  the lock
-- KEYS[2]  the counter of fencing tokens
-- ARGV[1]  token of the new holder
-- ARGV[2]  TTL in ms
-- ARGV[3]  how long to keep the counter, in ms
-- reply    the fencing token (1 or more), or 0 if another client holds the lock
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
local fence = redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return fence
