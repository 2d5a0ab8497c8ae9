-- Returns the unit that an attempt has reserved.
--
-- KEYS[1]  the item, in the format of redis_stock.lua
-- ARGV[1]  token of the attempt
-- reply    1 if returned, 0 if the attempt has no unit or has already returned it
local driver = redis.call('HGET', KEYS[1], ARGV[1])
if not driver then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'driver:' .. driver, -1)
redis.call('HINCRBY', KEYS[1], 'stock', 1)
return 1
