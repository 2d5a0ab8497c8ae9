-- Sets a unit of an item aside for a driver, if one is left and he may have one more.
--
-- KEYS[1]  the item: a hash with the units left in the field "stock", how many each driver
--          has in "driver:ID", and one field an attempt that has a unit, with its driver
-- ARGV[1]  driver
-- ARGV[2]  how many units one driver may have
-- ARGV[3]  the attempt's token
-- ARGV[4]  for how long the item is kept, ms
-- ARGV[5]  units left by the database, for a Redis that does not know the item; "": not known
-- reply    1: set aside, also where it had been for this token; 0: none is left; 2: the driver
--          has as many as he may; -1: the item is not known, and ARGV[5] is empty
local left = redis.call('HGET', KEYS[1], 'stock')
if not left then
  if ARGV[5] == '' then
    return -1
  end
  left = ARGV[5]
  redis.call('HSET', KEYS[1], 'stock', left)
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
  return 1
end
local driver = 'driver:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], driver) or '0') >= tonumber(ARGV[2]) then
  return 2
end
if tonumber(left) < 1 then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'stock', -1)
redis.call('HINCRBY', KEYS[1], driver, 1)
redis.call('HSET', KEYS[1], ARGV[3], ARGV[1])
return 1
