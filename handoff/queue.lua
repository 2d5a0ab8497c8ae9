-- This is the second half of acquire.lua. It uses the functions in functions.lua.
local lease = redis.pcall('GET', KEYS[1]) -- a table if the key has another type
if lease and (type(lease) == 'table' or string.sub(lease, 1, #prefix) ~= prefix) then return 3 end
if lease == name or lease == name .. '+' then -- a reply or a message was lost
  call('PEXPIRE', KEYS[1], ttl)
  call('ZREM', KEYS[2], name)
  local n = draw(block)
  return lease == name and n or -n
end
if mode == 'look' and not call('ZSCORE', KEYS[2], name) then return 2 end
if mode ~= 'try' then enqueue(name) end
if not lease then
  local n = pass(name)
  if not n then -- only in mode "try": no process in the queue was alive
    call('SET', KEYS[1], name, 'PX', ttl)
    return draw(block)
  end
  if n ~= 0 then return n end
elseif mode ~= 'try' then
  local holder = string.gsub(lease, '%+', '')
  if holder == lease then call('APPEND', KEYS[1], '+') end
  -- Send the message each time, because an earlier one may have been lost.
  if holder == lease or mode == 'look' then publish(holder, 0) end
end
return mode == 'try' and 1 or 0
