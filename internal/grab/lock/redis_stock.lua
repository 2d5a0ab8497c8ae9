-- Reserves a unit of an item for a driver, if a unit is left and the driver may have another one.
--
-- KEYS[1]  the item, a hash with these fields:
--            "stock"      the number of units left
--            "driver:ID"  the number of units of this driver
--            TOKEN        the driver of the attempt with this token, if it has a unit
-- ARGV[1]  driver
-- ARGV[2]  how many units a driver may have
-- ARGV[3]  token of this attempt
-- ARGV[4]  how long to keep the item, in ms
-- ARGV[5]  the units left in the database, for an item that Redis does not know; "" if unknown
-- reply    1 if a unit is reserved, now or by an earlier call with this token
--          0 if no unit is left
--          2 if the driver has reached the limit
--          -1 if Redis does not know the item and ARGV[5] is empty
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
