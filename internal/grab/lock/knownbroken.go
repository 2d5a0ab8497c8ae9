package lock

// knownBroken derives a known-broken variant from a correct strategy: one mistake is
// put in, and what else the registry says
// of it is what it says of the correct one.
func knownBroken(correct Strategy, name, title, breaks string, New func(Env) (Locker, error)) Strategy {
	s := correct
	s.Name, s.Title, s.Breaks, s.New = name, title, []string{breaks}, New
	return s
}
