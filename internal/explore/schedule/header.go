package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A header is a line above the steps. It consists of a name and one or more words.
type header struct {
	name    string
	example string
	needed  bool
	print   func(Schedule) string // returns "" if the line is omitted
	parse   func(*Schedule, []string) error
}

// headers lists the header lines of a schedule in print order.
var headers = []header{
	{"strategy", "setnx", true, func(s Schedule) string { return s.Strategy }, word(func(s *Schedule) *string { return &s.Strategy })},
	{"guard", "naive", false, func(s Schedule) string { return s.Guard }, word(func(s *Schedule) *string { return &s.Guard })},
	{"on-lost", "abort", false, func(s Schedule) string { return s.OnLost }, word(func(s *Schedule) *string { return &s.OnLost })},
	{"actors", "A@1 B@2", true, printActors, parseActors},
	{"nodes", "redis", false, func(s Schedule) string { return strings.Join(s.Nodes, " ") }, parseNodes},
	{"ttl", "3s", true, func(s Schedule) string { return s.TTL.String() }, span(func(s *Schedule) *time.Duration { return &s.TTL })},
	{"work", "1s", false, func(s Schedule) string { return positive(s.Work) }, span(func(s *Schedule) *time.Duration { return &s.Work })},
	{"wait", "10s", false, func(s Schedule) string { return positive(s.Wait) }, span(func(s *Schedule) *time.Duration { return &s.Wait })},
	{"stock", "2", false, printStock, parseStock},
	{"property", "one-winner", false, func(s Schedule) string { return s.Property }, word(func(s *Schedule) *string { return &s.Property })},
	{"mode", "F11", false, func(s Schedule) string { return s.Mode }, word(func(s *Schedule) *string { return &s.Mode })},
}

// positive formats a duration. It returns "" for a duration of 0 and for a negative one.
func positive(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}

func word(at func(*Schedule) *string) func(*Schedule, []string) error {
	return func(s *Schedule, words []string) error {
		if len(words) != 1 {
			return errors.New("the line must have exactly one value")
		}
		*at(s) = words[0]
		return nil
	}
}

func span(at func(*Schedule) *time.Duration) func(*Schedule, []string) error {
	return func(s *Schedule, words []string) error {
		if len(words) != 1 {
			return errors.New("the line must have exactly one duration, such as 5s")
		}
		d, err := time.ParseDuration(words[0])
		if err != nil || d <= 0 {
			return fmt.Errorf("%q must be a duration of more than 0, such as 5ms", words[0])
		}
		*at(s) = d
		return nil
	}
}

func printActors(s Schedule) string {
	actors := make([]string, len(s.Actors))
	for i, a := range s.Actors {
		actors[i] = fmt.Sprintf("%s@%d", a.Name, a.Instance)
		if a.As != "" {
			actors[i] += "/" + a.As
		}
	}
	return strings.Join(actors, " ")
}

func parseActors(s *Schedule, words []string) error {
	if len(words) == 0 {
		return errors.New("the line must name at least one actor, such as A@1")
	}
	for _, w := range words {
		name, rest, _ := strings.Cut(w, "@")
		instance, as, again := strings.Cut(rest, "/")
		n, err := parseCount(instance)
		if err != nil || !isActor(name) {
			return fmt.Errorf("%q must be an actor and its instance, such as A@1", w)
		}
		if s.InstanceOf(name) != 0 {
			return fmt.Errorf("actor %s is listed twice", name)
		}
		if again && s.InstanceOf(as) == 0 {
			return fmt.Errorf("actor %s repeats the driver of actor %q: list that actor first", name, as)
		}
		s.Actors = append(s.Actors, Actor{Name: name, Instance: n, As: as})
	}
	return nil
}

func printStock(s Schedule) string {
	if s.Stock <= 1 {
		return ""
	}
	return strconv.Itoa(s.Stock)
}

func parseStock(s *Schedule, words []string) (err error) {
	if len(words) != 1 {
		return errors.New("the line must have exactly one number")
	}
	s.Stock, err = parseCount(words[0])
	return err
}

func parseNodes(s *Schedule, words []string) error {
	if len(words) == 0 {
		return errors.New("the line must name at least one server, such as redis")
	}
	for i, w := range words {
		if !isServer(w) || w == DB || slices.Contains(words[:i], w) {
			return fmt.Errorf("%q must be the name of a lock server, such as redis, and must occur only once", w)
		}
	}
	s.Nodes = words
	return nil
}
