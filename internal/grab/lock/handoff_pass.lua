-- pass hands the lease to the first in the queue whose process listens, and wakes it by
-- publishing "name fence ttl key". PUBLISH tells how many heard it: nobody means that the process
-- is gone. The number in the queue becomes the fence if it is above last, the highest fence that
-- may have been given out; if not, a new one is drawn. first is what ZPOPMIN took already. It
-- returns the new holder; me if that is the first; nil if nobody is left, when the lease may
-- still name the dead.
local function pass(last, ttl, first, me)
  while true do
    first = first or call('ZPOPMIN', KEYS[2])
    local name, fence = first[1], first[2]
    if not name or name == me then return name end
    if tonumber(fence) <= last then fence = format('%d', draw()) end
    call('SET', KEYS[1], name, 'PX', ttl)
    if call('PUBLISH', string.match(name, '(.*)/'), name .. ' ' .. fence .. ' ' .. ttl .. ' ' .. KEYS[1]) > 0 then
      return name
    end
    first = nil
  end
end
