-- Adds an entry to a re-entrant lock and restarts its lease. A repeated call with
-- the same token makes no second entry, so a call can be repeated after a lost reply.
--
-- KEYS[1]  the lock, a hash: the field "owner" names its owner, every other
--          field is the token of one of the owner's entries
-- KEYS[2]  the counter of its fencing tokens; optional
-- ARGV[1]  owner
-- ARGV[2]  token of this entry
-- ARGV[3]  TTL in ms
-- ARGV[4]  how long the counter is kept, in ms
-- reply    0 if the lock is taken; a negative number if it is taken with a fencing
--          token, which is the number negated; otherwise the ms (at least 1) for
--          which another owner still has the lock
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
