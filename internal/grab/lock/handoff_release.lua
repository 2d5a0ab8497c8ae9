-- Gives the lease back if nobody waits; handoff_next.lua is for when somebody does.
-- KEYS: the first of handoff_numbers.lua
-- ARGV: 1 the name that the lease has
-- Reply: 1 nobody has it now; 0 it was not the holder's any more; -1 others wait, or did, or there is no
-- lock: nothing is done.
local name = redis.call('GET', KEYS[1])
if name == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return (name == 'queue' or not name) and -1 or 0
