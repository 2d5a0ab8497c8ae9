package lock

// seeded is a correct lock with one mistake put in. What else the registry says
// of it is what it says of the correct one.
func seeded(correct Strategy, name, title, breaks string, New func(Env) (Locker, error)) Strategy {
	s := correct
	s.Name, s.Title, s.Breaks, s.New = name, title, []string{breaks}, New
	return s
}
