-- Undoes whatever some names of a process have in the queue or of the lease.
-- ARGV: 1 … names
-- Reply: 1 one of them held the lease, 0 none did.
call('ZREM', KEYS[3], unpack(ARGV))
local has = holder(false)
for _, name in ipairs(ARGV) do
  if name == has then
    if not pass(math.huge) then free() end
    return 1
  end
end
-- With the last who waited the lease is what it was without.
if call('EXISTS', KEYS[3]) == 0 and call('GET', KEYS[1]) == 'queue' then
  if has then call('RENAME', KEYS[2], KEYS[1]) else free() end
end
return 0
