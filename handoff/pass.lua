-- The rest of release.lua, with the functions.
if lease ~= ARGV[1] and lease ~= ARGV[1] .. '+' then
  call('ZREM', KEYS[2], ARGV[1])
  return 2
end
if ARGV[2] ~= '' then enqueue(ARGV[2]) end
return pass(ARGV[2], ARGV[3]) or 1
