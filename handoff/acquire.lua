-- Takes the lease or a place in the queue. A name that already has it gets it again.
-- ARGV: 1 name
--       2 TTL of the lease, ms
--       3 if the lease is not free: "join" takes a place at the tail, "look" keeps the present
--         place, and "try" takes no place
--       4 "fast" if the lock is probably free and its counter expires much later. The name may
--         then get the lease before a queue whose holder has died
-- Reply: the last token of the block (negative if others wait), or 0 queued, 1 busy, 2 neither,
--        3 the key holds something else than a lease of this version of the protocol
local name, ttl, mode, fast = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == 'fast'
local free = fast or mode ~= 'look' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0
if free and redis.call('SET', KEYS[1], name, 'PX', ttl, 'NX') then
  local n = redis.call('INCRBY', KEYS[3], block)
  if n > first then
    if not fast then redis.call('PEXPIRE', KEYS[3], counterTTL) end
    return n
  end
end
