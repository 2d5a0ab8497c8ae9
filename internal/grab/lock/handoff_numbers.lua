-- What the handoff scripts share. All of them get the same
-- KEYS: 1 the lock: a string, the name of its holder, which expires with the lease; or 'queue'
--         while others wait, which outlives the lease: nobody is to take it past them
--       2 the lease while others wait: a string that expires, the name of its holder
--       3 the queue: a sorted set of names by number
--       4 the counter of numbers
-- A name is "channel/n": where its process listens, and which of its waiters it is; it is used
-- for one acquisition. The channel ends in the TTL that its process gives its leases, in ms.
-- first: a counter that is lower has begun anew
-- keep: for how long the queue is kept, and the lock beyond the lease while others wait, ms
local call, format = redis.call, string.format

-- draw returns a number above all before. A counter that is not there starts at the clock, in
-- microseconds: above all that it ever gave out, unless a lock is taken more often than a million
-- times a second. So one that was forgotten does not fall back, and one that is a day old may go.
local function draw()
  local n = call('INCR', KEYS[4])
  if n < first then
    local now = call('TIME')
    n = now[1] * 1000000 + now[2]
    call('SET', KEYS[4], format('%d', n), 'EX', 86400)
  end
  return n
end
