-- Takes a re-entrant lock, or adds an entry for its owner, and restarts the lease. A repeated call
-- with the same token adds no second entry, so callers can repeat a call if its reply was lost.
--
-- KEYS[1]  the lock, a hash: the field "owner" is the owner's name, and all other fields are
--          the tokens of the owner's entries
-- KEYS[2]  the counter of fencing tokens; optional
-- ARGV[1]  owner
-- ARGV[2]  token of this entry
-- ARGV[3]  TTL in ms
-- ARGV[4]  how long to keep the counter, in ms
-- reply    0 if the lock was taken without a fencing token
--          -n if the lock was taken with the fencing token n
--          otherwise the remaining time of another owner's lock, in ms (at least 1)
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then
  return math.max(redis.call('PTTL', KEYS[1]), 1)
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], '')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if not KEYS[2] then
  return 0
end
local fence = redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return -fence
