-- Gives up the lease of a name, or its place in the queue. The lease goes to the next in the queue.
-- ARGV: 1 name
--       2 name under which the process joins the queue again in the same step, or ""
-- Reply: the last token of the block of the second name (negative if others wait), or
--        0 another name has the lease, 1 no one has it, 2 the name did not have it
local lease = call('GET', KEYS[1])
if lease ~= ARGV[1] and lease ~= ARGV[1] .. '+' then
  call('ZREM', KEYS[2], ARGV[1])
  return 2
end
if ARGV[2] ~= '' then enqueue(ARGV[2]) end
return pass(ARGV[2]) or 1
