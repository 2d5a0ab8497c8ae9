-- Looks after a queue, for some of those in it: passes on a lease that ran out.
-- ARGV: 1 … names
-- Reply: the holder, or false; then the number of each name in the queue, or false.
local has = holder(true)
if not has then
  has = pass(math.huge) or false
  if not has then free() end
end
call('PEXPIRE', KEYS[3], keep)
local reply = call('ZMSCORE', KEYS[3], unpack(ARGV))
table.insert(reply, 1, has)
return reply
