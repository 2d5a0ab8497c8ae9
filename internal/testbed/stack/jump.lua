-- Does what a jump of the node's clock does: it moves every expiry.
-- ARGV[1]: how far the clock moves forward, in ms. Reply: the number of keys that moved.
-- One script moves all keys, so that no client sees a clock that has moved for only some of
-- them. The script declares no keys, because it is not meant for a Cluster.
local moved = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', key, left - tonumber(ARGV[1]))
    moved = moved + 1
  end
end
return moved
