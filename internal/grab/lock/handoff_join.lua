-- Queues several names of a process at once, under neighbouring numbers; a lease that is free goes
-- to the first of them, unless others wait.
-- ARGV: 1 TTL of the lease, ms
--       2 … names
-- Reply: > 0 the lease is the first name's, this is its fence; < 0 all are queued. The numbers go
-- on from there, one by one.
local taken = call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0
if taken then call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1]) end
if not holder(true) then
  taken = not pass(math.huge)
  if taken then give(ARGV[2], ARGV[1]) end
end
local n = draw()
call('INCRBY', KEYS[4], #ARGV - 2)
local queue = {}
for i = taken and 3 or 2, #ARGV do
  table.insert(queue, format('%d', n + i - 2))
  table.insert(queue, ARGV[i])
end
if #queue > 0 then
  call('ZADD', KEYS[3], unpack(queue))
  call('PEXPIRE', KEYS[3], keep)
end
return taken and n or -n
