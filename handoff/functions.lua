-- What several scripts use. Before it stand the constants block, first, queueTTL, counterTTL and
-- counts: PUBLISH counts all who listen.
-- KEYS: 1 lease: the name of the turn that has it, and "+" behind it if others wait; expires
--       2 queue: names of the turns that wait, by the ticket that each drew
--       3 counter: the last number drawn, a fencing token or a ticket
local call, format = redis.call, string.format

-- draw takes the next count numbers, and returns the last of them.
local function draw(count)
  local n = call('INCRBY', KEYS[3], count)
  if n < first then -- the counter was lost: it goes on from the clock, above all before
    local now = call('TIME')
    n = now[1] * 1000000 + now[2] + count
    call('SET', KEYS[3], format('%d', n))
  end
  call('PEXPIRE', KEYS[3], counterTTL)
  return n
end

-- enqueue puts a name at the tail of the queue, unless it is there already.
local function enqueue(name)
  if not call('ZSCORE', KEYS[2], name) then call('ZADD', KEYS[2], format('%d', draw(1)), name) end
  call('PEXPIRE', KEYS[2], queueTTL)
end

-- publish tells the process of a name something of it: "name n key". It returns how many heard it.
local function publish(name, n)
  return call('PUBLISH', string.match(name, '^(.*)/'), name .. ' ' .. format('%d', n) .. ' ' .. KEYS[1])
end

-- pass gives the lease to the first in the queue, with a block of tokens. own is the caller's name, if
-- it may be first: the reply tells it. A process that does not listen, where that is known, is
-- gone. It returns own's block (negative: others wait), 0 if another has the
-- lease, or nil if nobody is left.
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
