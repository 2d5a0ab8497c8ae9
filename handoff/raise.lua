-- Raises the counter, so that the next token is greater than ARGV[1].
if tonumber(call('GET', KEYS[3]) or 0) < tonumber(ARGV[1]) then call('SET', KEYS[3], ARGV[1]) end
return call('PEXPIRE', KEYS[3], counterTTL)
