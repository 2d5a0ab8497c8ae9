-- Takes a lock and sets its expiry in one step.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the new holder
-- ARGV[2]  TTL in ms
-- reply    1 if the lock was taken, 0 if another client holds it
if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
