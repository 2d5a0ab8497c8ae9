-- Looks after a queue, for some of those in it: passes on a lease that ran out.
-- ARGV: 1 for how long the queue is kept, ms
--       2 … names
-- Reply: the holder, or false; then the number of each name in the queue, or false.
local holder = call('GET', KEYS[1])
if not holder then
  holder = pass(math.huge) or false
  if not holder then call('DEL', KEYS[1]) end
end
call('PEXPIRE', KEYS[2], ARGV[1])
local reply = call('ZMSCORE', KEYS[2], unpack(ARGV, 2))
table.insert(reply, 1, holder)
return reply
