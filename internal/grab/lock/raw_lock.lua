-- Takes a lock with an expiry in one step.
--
-- KEYS[1]  the lock
-- ARGV[1]  token
-- ARGV[2]  TTL in ms
-- reply    1 if the lock is taken, 0 if another client holds it
if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
