-- Raises a counter of fencing tokens that has fallen behind the database.
--
-- KEYS[1]  the counter
-- ARGV[1]  what it must have reached
-- ARGV[2]  for how long it is kept, ms
-- reply    1: raised, 0: it was there already
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
