-- Queues several names of a process at once, under neighbouring numbers; a lease that is free goes
-- to the first of them, unless others wait.
-- ARGV: 1 TTL of the lease, ms
--       2 … names
-- keep: for how long the queue is kept, ms
-- Reply: > 0 the lease is the first name's, this is its fence; < 0 all are queued. The numbers go
-- on from there, one by one.
local free = call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1])
if free then
  free = not pass(math.huge)
  if free then call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1]) end -- pass may have tried the dead
end
local n = draw()
call('INCRBY', KEYS[3], #ARGV - 2)
local queue = {}
for i = free and 3 or 2, #ARGV do
  table.insert(queue, format('%d', n + i - 2))
  table.insert(queue, ARGV[i])
end
if #queue > 0 then
  call('ZADD', KEYS[2], unpack(queue))
  call('PEXPIRE', KEYS[2], keep)
end
return free and n or -n
