-- What a jump of the node's clock does to it: every expiry moves.
-- ARGV[1]: by how many ms the clock goes forward. Reply: how many keys moved.
-- One script, so that no client sees a node whose clock has jumped for half of its
-- keys. Keys are not declared: this is for a node by itself, and no Cluster.
local moved = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', key, left - tonumber(ARGV[1]))
    moved = moved + 1
  end
end
return moved
