local name, ttl, place = ARGV[1], ARGV[2], ARGV[3]
if free then
  -- A lease ran out with others waiting: they come first. No number of theirs is known to be
  -- above the fence that it had, so each is drawn.
  local next = pass(math.huge, nil, name)
  if not next or next == name then
    call('SET', KEYS[1], name, 'PX', ttl)
    return draw()
  end
elseif (place or not keep) and call('GET', KEYS[1]) == name then
  -- It is ours already: an earlier reply or the wake-up was lost, or came too late.
  call('PEXPIRE', KEYS[1], ttl)
  call('ZREM', KEYS[2], name)
  return draw()
end
if not keep then return 0 end
local n = draw()
if not place or place == '0' then place = format('%d', n) end
call('ZADD', KEYS[2], 'NX', place, name)
call('PEXPIRE', KEYS[2], keep)
return -n
