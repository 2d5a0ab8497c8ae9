-- Takes one entry out of a lock. With the last one the lock goes too, and one
-- message tells the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the entry
-- ARGV[2]  channel on which to tell
-- reply    1: released, 0: the lock is not ours any more
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('HLEN', KEYS[1]) == 1 then -- only the owner's name is left
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], 'free')
end
return 1
