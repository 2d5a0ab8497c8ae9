-- Gives the lease of a name back, or its place in the queue: to the next in the queue, if others wait.
-- ARGV: 1 name
--       2 name under which the process queues again in the same step, or ""
-- Reply: the last token of the block of the second name (negative: others wait), or
--        0 another has the lease, 1 nobody has it, 2 it was not the name's
local lease = call('GET', KEYS[1])
if lease ~= ARGV[1] and lease ~= ARGV[1] .. '+' then
  call('ZREM', KEYS[2], ARGV[1])
  return 2
end
if ARGV[2] ~= '' then enqueue(ARGV[2]) end
return pass(ARGV[2]) or 1
