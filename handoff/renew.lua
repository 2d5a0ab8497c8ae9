-- Extends the lease of a name to a full TTL from now.
-- ARGV: 1 name, 2 TTL, ms
-- Reply: 1 renewed, -1 renewed and others wait, 2 the name does not have the lease
local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] and lease ~= ARGV[1] .. '+' then return 2 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return lease == ARGV[1] and 1 or -1
