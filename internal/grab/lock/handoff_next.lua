if not pass(tonumber(ARGV[3]), ARGV[2], first) then call('DEL', KEYS[1]) end
return 1
