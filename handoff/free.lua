-- Frees a lease for which nobody waits, as far as its holder knows.
-- ARGV: 1 name
-- Reply: 1 freed, 0 others wait, or the name does not have it: see release.lua
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
