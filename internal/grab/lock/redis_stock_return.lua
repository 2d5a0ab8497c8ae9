-- Gives back the unit that an attempt has set aside.
--
-- KEYS[1]  the item, as redis_stock.lua keeps it
-- ARGV[1]  the attempt's token
-- reply    1: given back; 0: the attempt has none, or no more
local driver = redis.call('HGET', KEYS[1], ARGV[1])
if not driver then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'driver:' .. driver, -1)
redis.call('HINCRBY', KEYS[1], 'stock', 1)
return 1
