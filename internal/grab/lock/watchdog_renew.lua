-- Restarts the lease of a lock if the entry still exists.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the entry
-- ARGV[2]  TTL in ms
-- reply    1 if renewed, 0 if there is no such entry
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
