-- Releases the lease of a name, or its place in the queue. The next name in the
-- queue gets the lease.
-- ARGV: 1 name
--       2 name under which the same process joins the queue again, or ""
-- Reply: the last token of the second name's block (negative if others wait), or
--        0 another name has the lease, 1 no one has the lease, 2 the first name did not have it
local lease = call('GET', KEYS[1])
if lease ~= ARGV[1] and lease ~= ARGV[1] .. '+' then
  call('ZREM', KEYS[2], ARGV[1])
  return 2
end
if ARGV[2] ~= '' then enqueue(ARGV[2]) end
return pass(ARGV[2]) or 1
