-- Gives a lock a whole lease again, if the entry is still in it.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the entry
-- ARGV[2]  TTL in ms
-- reply    1: renewed, 0: the lock is not ours any more
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
