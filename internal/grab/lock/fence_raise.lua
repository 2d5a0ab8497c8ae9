-- Raises a counter of fencing tokens if the database already contains a higher token.
--
-- KEYS[1]  the counter
-- ARGV[1]  the minimum value
-- ARGV[2]  how long to keep the counter, in ms
-- reply    1 if raised, 0 if the counter was already high enough
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
