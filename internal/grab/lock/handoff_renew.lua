-- KEYS: the first two of handoff_numbers.lua
-- ARGV: 1 the holder's name
--       2 TTL, ms
-- keep: as there
-- Reply: 1 renewed, 0 the lease is not the holder's any more.
local lock, lease = unpack(redis.call('MGET', KEYS[1], KEYS[2]))
if lock == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if lease ~= ARGV[1] then return 0 end
if lock and lock ~= 'queue' then -- it was missing, and another has taken it
  redis.call('DEL', KEYS[2])
  return 0
end
redis.call('SET', KEYS[1], 'queue', 'PX', ARGV[2] + keep)
return redis.call('PEXPIRE', KEYS[2], ARGV[2])
