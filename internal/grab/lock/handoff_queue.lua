local name, ttl, place = ARGV[1], ARGV[2], ARGV[3]
if taken then return draw() end
local has = holder(waits)
if not has then
  -- A lease ran out with others waiting: they come first. No number of theirs is known to be
  -- above the fence that it had, so each is drawn.
  local next = pass(math.huge, name)
  if not next or next == name then
    give(name, ttl)
    return draw()
  end
elseif (place or not waits) and has == name then
  -- It is ours already: an earlier reply or the wake-up was lost, or came too late.
  if call('GET', KEYS[1]) == name then call('PEXPIRE', KEYS[1], ttl) else give(name, ttl) end
  call('ZREM', KEYS[3], name)
  return draw()
end
if not waits then
  if place then draw() end -- for a counter that it began
  return 0
end
local n = draw()
if not place or place == '0' then place = format('%d', n) end
call('ZADD', KEYS[3], 'NX', place, name)
call('PEXPIRE', KEYS[3], keep)
return -n
