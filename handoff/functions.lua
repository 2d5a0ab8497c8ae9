-- Functions that several scripts share. The program defines the constants before them: block,
-- first, queueTTL, counterTTL, prefix (with which all names of this protocol version begin) and
-- counts (whether PUBLISH counts all subscribers).
-- KEYS: 1 lease: the name of its holder, followed by "+" if others wait; expires
--       2 queue: the names of the waiters, sorted by ticket
--       3 counter: the last number that was issued, as a fencing token or a ticket
local call, format = redis.call, string.format

-- draw reserves the next count numbers and returns the last one.
local function draw(count)
  local n = call('INCRBY', KEYS[3], count)
  if n < first then -- the counter was lost: continue from the clock, above all earlier numbers
    local now = call('TIME')
    n = now[1] * 1000000 + now[2] + count
    call('SET', KEYS[3], format('%d', n))
  end
  call('PEXPIRE', KEYS[3], counterTTL)
  return n
end

-- enqueue adds a name to the end of the queue if it is not in the queue.
local function enqueue(name)
  if not call('ZSCORE', KEYS[2], name) then call('ZADD', KEYS[2], format('%d', draw(1)), name) end
  call('PEXPIRE', KEYS[2], queueTTL)
end

-- publish sends "name n key" to the process of this name. It returns the number of receivers.
local function publish(name, n)
  return call('PUBLISH', string.match(name, '^(.*)/'), name .. ' ' .. format('%d', n) .. ' ' .. KEYS[1])
end

-- pass gives the lease to the first name in the queue, with a block of tokens. own is the caller's
-- name, which gets the reply instead of a message. If counts is true, pass skips each name whose
-- process has no subscriber. It returns the last token of own's block (negative if others wait), 0 if
-- another name got the lease, or nil if the queue is empty.
local function pass(own)
  while true do
    local name = call('ZPOPMIN', KEYS[2])[1]
    if not name then
      call('DEL', KEYS[1])
      return nil
    end
    local n, others = draw(block), call('EXISTS', KEYS[2]) == 1
    call('SET', KEYS[1], others and name .. '+' or name, 'PX', string.match(name, ':(%d+)/'))
    if others then n = -n end
    if name == own then return n end
    if publish(name, n) > 0 or not counts then return 0 end
  end
end
