-- Undoes whatever some names of a process have in the queue or of the lease.
-- ARGV: 1 … names
-- Reply: 1 one of them held the lease, 0 none did.
call('ZREM', KEYS[2], unpack(ARGV))
local holder = call('GET', KEYS[1])
for _, name in ipairs(ARGV) do
  if name == holder then
    if not pass(math.huge) then call('DEL', KEYS[1]) end
    return 1
  end
end
return 0
