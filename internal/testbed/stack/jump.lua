-- Makes all keys expire earlier, as if the server's clock had jumped forward.
--
-- ARGV[1]  how far the clock jumps, in ms
-- ARGV[2]  the number of databases
-- reply    the number of keys that changed
--
-- A single script changes all keys, so that no client sees a partial change. It declares no keys,
-- because it is not used with a Cluster.
local moved = 0
for db = 0, tonumber(ARGV[2]) - 1 do
  redis.call('SELECT', db)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local left = redis.call('PTTL', key)
    if left >= 0 then
      redis.call('PEXPIRE', key, left - tonumber(ARGV[1]))
      moved = moved + 1
    end
  end
end
return moved
