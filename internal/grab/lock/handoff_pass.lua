-- pass hands the lease to the first in the queue whose process listens, and wakes it by
-- publishing "name fence key". PUBLISH tells how many heard it: nobody means that the process is
-- gone. The number in the queue becomes the fence if it is above last, the highest fence that may
-- have been given out; if not, a new one is drawn. It returns the new holder; nil if nobody is
-- left, when the lease may still name the dead.
-- first is what ZPOPMIN took already. me is the caller's name, if it may be in the queue itself:
-- it is returned when its turn comes. from is the caller's name, if a wake-up for its own process
-- may go with the reply: then it is returned as a second value and not published.
local function pass(last, first, me, from)
  while true do
    first = first or call('ZPOPMIN', KEYS[2])
    local name, fence = first[1], first[2]
    if not name or name == me then return name end
    if tonumber(fence) <= last then fence = format('%d', draw()) end
    local channel, ttl = string.match(name, '^(.*:(%d+))/')
    call('SET', KEYS[1], name, 'PX', ttl)
    local wakeup = name .. ' ' .. fence .. ' ' .. KEYS[1]
    if from and string.sub(from, 1, #channel + 1) == channel .. '/' then return name, wakeup end
    if call('PUBLISH', channel, wakeup) > 0 then return name end
    first = nil
  end
end
