-- Releases a lock if the token still matches. It compares and deletes in one
-- step, so that no other client can take the lock in between.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token of the acquisition
-- reply    1 if released, 0 if the token does not match
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
