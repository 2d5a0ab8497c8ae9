-- KEYS: 1 the lease
-- ARGV: 1 the holder's name
--       2 TTL, ms
-- Reply: 1 renewed, 0 the lease is not the holder's any more.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
