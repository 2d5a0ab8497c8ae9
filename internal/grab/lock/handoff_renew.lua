-- KEYS: the first two of handoff_numbers.lua
-- ARGV: 1 the holder's name
--       2 TTL, ms
-- Reply: 1 renewed, 0 the lease is not the holder's any more.
local name = redis.call('GET', KEYS[1])
if name == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if name ~= 'queue' or redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2] + linger)
return redis.call('PEXPIRE', KEYS[2], ARGV[2])
