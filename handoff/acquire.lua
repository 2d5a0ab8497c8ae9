-- Takes the lease, or a place in the queue. A name that already has the lease or a place keeps it.
-- ARGV: 1 name
--       2 TTL of the lease, ms
--       3 what to do if the lease is taken: "join" takes a place at the end of the queue, "look"
--         keeps the current place, and "try" takes no place
--       4 "fast" if the lock is probably free and its counter will not expire soon. If a holder has
--         died, the name may then get the lease before the names in the queue
-- Reply: the last token of the new block (negative if others wait), 0 queued, 1 busy,
--        2 the name has neither the lease nor a place, 3 the key contains something other than a
--        lease of this protocol version
local name, ttl, mode, fast = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == 'fast'
local free = fast or mode ~= 'look' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0
if free and redis.call('SET', KEYS[1], name, 'PX', ttl, 'NX') then
  local n = redis.call('INCRBY', KEYS[3], block)
  if n > first then
    if not fast then redis.call('PEXPIRE', KEYS[3], counterTTL) end
    return n
  end
end
