-- Releases a lock if the caller still holds it. The comparison and the deletion are one step, so
-- that no other client can take the lock in between.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the holder
-- reply    1 if released, 0 if the token does not match
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
