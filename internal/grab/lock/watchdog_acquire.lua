-- Makes an entry in a re-entrant lock, and gives the lock a whole lease. Asking
-- twice with one token is asking once, so that a call whose reply was lost may be
-- made again.
--
-- KEYS[1]  the lock, a hash: the field "owner" names its owner, every other
--          field is the token of one of the owner's entries
-- KEYS[2]  the counter of its fencing tokens; may be left out
-- ARGV[1]  owner
-- ARGV[2]  token of this entry
-- ARGV[3]  TTL in ms
-- ARGV[4]  for how long the counter is kept, ms
-- reply    0: it is ours; less: likewise, and this is minus the fencing token;
--          else another owner's, and for how many ms yet, at least 1
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
