-- Looks after a queue, for some of those in it: passes on a lease that ran out.
-- ARGV: 1 … names
-- Reply: the holder, or false; then the number of each name in the queue, or false.
local others = call('PEXPIRE', KEYS[3], keep) == 1
local has = holder(others)
if not has then
  has = pass(math.huge) or false
  if not has then free() end
end
local reply = call('ZMSCORE', KEYS[3], unpack(ARGV))
table.insert(reply, 1, has)
return reply
