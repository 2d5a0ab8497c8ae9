-- Gives a lock back if it is still ours: compare and delete in one step, so
-- that no other holder can come in between.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token that it was taken with
-- reply    1: released, 0: it is not ours any more
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
