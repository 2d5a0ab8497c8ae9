package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
)

// A header is a line above the steps. It consists of a name and one or more words.
type header struct {
	name    string
	example string
	needed  bool
	what    string          // the name of the value, such as "duration", if there must be exactly one; otherwise empty
	words   field[Schedule] // print returns "" if the line can be omitted
}

// headers lists the header lines in the order in which they are printed.
var headers = []header{
	{"strategy", "setnx", true, "value", word(func(s *Schedule) *string { return &s.Strategy })},
	{"guard", "naive", false, "value", word(func(s *Schedule) *string { return &s.Guard })},
	{"on-lost", "abort", false, "value", word(func(s *Schedule) *string { return &s.OnLost })},
	{"actors", "A@1 B@2", true, "", field[Schedule]{printActors, parseActors}},
	{"nodes", "redis", false, "", field[Schedule]{func(s Schedule) string { return strings.Join(s.Nodes, " ") }, parseNodes}},
	{"ttl", "3s", true, "duration", span(func(s *Schedule) *time.Duration { return &s.TTL })},
	{"work", "1s", false, "duration", span(func(s *Schedule) *time.Duration { return &s.Work })},
	{"wait", "10s", false, "duration", span(func(s *Schedule) *time.Duration { return &s.Wait })},
	{"stock", "2", false, "number", fieldAt(func(s *Schedule) *int { return &s.Stock }, printStock, parseCount)},
	{"property", "one-winner", false, "value", word(func(s *Schedule) *string { return &s.Property })},
	{"mode", "F11", false, "value", word(func(s *Schedule) *string { return &s.Mode })},
}

func (h header) parseWords(s *Schedule, words []string) error {
	if h.what != "" && len(words) != 1 {
		return fmt.Errorf("the line must have exactly one %s", h.what)
	}
	return h.words.parse(s, strings.Join(words, " "))
}

func word(at func(*Schedule) *string) field[Schedule] {
	return fieldAt(at, unchanged, func(word string) (string, error) { return word, nil })
}

// span returns a field for a positive duration. The field prints nothing if the duration is zero.
func span(at func(*Schedule) *time.Duration) field[Schedule] {
	print := func(d time.Duration) string {
		if d <= 0 {
			return ""
		}
		return d.String()
	}
	return fieldAt(at, print, parseDuration)
}

func printActors(s Schedule) string {
	return catalog.Join(s.Actors, " ", func(a Actor) string {
		if a.As == "" {
			return fmt.Sprintf("%s@%d", a.Name, a.Instance)
		}
		return fmt.Sprintf("%s@%d/%s", a.Name, a.Instance, a.As)
	})
}

// parseActors parses actors such as A@1, or C@2/A for an actor that repeats the driver of A, and
// adds them to s.
func parseActors(s *Schedule, words string) error {
	if words == "" {
		return errors.New("the line must name at least one actor, such as A@1")
	}
	for w := range strings.FieldsSeq(words) {
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

func printStock(units int) string {
	if units <= 1 {
		return ""
	}
	return strconv.Itoa(units)
}

func parseNodes(s *Schedule, words string) error {
	if words == "" {
		return errors.New("the line must name at least one server, such as redis")
	}
	for w := range strings.FieldsSeq(words) {
		if !isServer(w) || w == DB || slices.Contains(s.Nodes, w) {
			return fmt.Errorf("%q must be the name of a lock server, such as redis, and must occur only once", w)
		}
		s.Nodes = append(s.Nodes, w)
	}
	return nil
}
