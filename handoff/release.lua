-- Gives the lease of a name back, or its place in the queue: to the next in the queue, if others wait.
-- ARGV: 1 name
--       2 name under which the process queues again in the same step, or ""
--       3 "1": PUBLISH counts all who listen
-- Reply: the last token of the block of the second name (negative: others wait), or
--        0 another has the lease, 1 nobody has it, 2 it was not the name's
local lease = redis.call('GET', KEYS[1])
if lease == ARGV[1] and ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
