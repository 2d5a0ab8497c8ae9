-- Removes an entry from a lock. After the last entry, it deletes the lock and publishes a message
-- for the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  token of the entry
-- ARGV[2]  channel for the message
-- reply    1 if released, 0 if there is no such entry
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('HLEN', KEYS[1]) == 1 then -- only the owner's name is left
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], 'free')
end
return 1
