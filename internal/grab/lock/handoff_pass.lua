-- holder returns the name that has the lease; false: nobody has. others: the lock is to say, from
-- now on, that others wait. The lease goes on for as long as it did.
local function holder(others)
  local lock, lease = unpack(call('MGET', KEYS[1], KEYS[2]))
  if lock == 'queue' then return lease end
  if not lock then call('GET', KEYS[1]) end -- which fails if it is no lock of ours
  if lease and not lock or lock and others then
    if lock then call('RENAME', KEYS[1], KEYS[2]) end
    call('SET', KEYS[1], 'queue', 'PX', call('PTTL', KEYS[2]) + keep)
  end
  return lock or lease
end
-- give sets the lease, while others wait.
local function give(name, ttl)
  call('SET', KEYS[2], name, 'PX', ttl)
  call('SET', KEYS[1], 'queue', 'PX', ttl + keep)
end
-- free ends all leases.
local function free() call('DEL', KEYS[1], KEYS[2]) end
-- pass hands the lease to the first in the queue whose process listens, and wakes it by
-- publishing "name fence key". PUBLISH tells how many heard it: nobody means that the process is
-- gone. The number in the queue becomes the fence if it is above last, the highest fence that may
-- have been given out; if not, a new one is drawn. It returns the new holder; nil if nobody is
-- left, when the lease may still name the dead.
-- me is the caller's name, if it may be in the queue itself: it is returned when its turn comes.
-- from is the caller's name, if a wake-up for its own process may go with the reply: then it is
-- returned as a second value and not published.
local function pass(last, me, from)
  while true do
    local name, fence = unpack(call('ZPOPMIN', KEYS[3]))
    if not name or name == me then return name end
    if tonumber(fence) <= last then fence = format('%d', draw()) end
    local channel, ttl = string.match(name, '^(.*:(%d+))/')
    give(name, ttl)
    local wakeup = name .. ' ' .. fence .. ' ' .. KEYS[1]
    if from and string.sub(from, 1, #channel + 1) == channel .. '/' then return name, wakeup end
    if call('PUBLISH', channel, wakeup) > 0 then return name end
  end
end
