local next, wakeup = pass(tonumber(ARGV[2]), first, nil, ARGV[1])
if not next then call('DEL', KEYS[1]) end
return wakeup or 1
