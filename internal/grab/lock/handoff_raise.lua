-- Lifts the counter.
-- ARGV: 1 the number that it must have reached
-- Reply: the counter.
local n = draw()
if n < tonumber(ARGV[1]) then
  -- Above the clock it has no expiry, for to start at the clock again would be to fall back.
  n = tonumber(ARGV[1])
  call('SET', KEYS[4], ARGV[1])
end
return n
