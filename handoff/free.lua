-- Frees a lease if no other client waits for it.
-- ARGV: 1 name
-- Reply: 1 freed; 0 if others wait or the name does not have the lease (then use release.lua)
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
