package target

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab"
)

// Later describes a service that answers before it knows the result. The client must ask for the
// result with another request.
type Later struct {
	undecided Rule     // matches answers that do not contain the result
	path      Template // where to ask, relative to the base URL; empty if from is set
	from      Source   // where the answer contains the URL to ask
}

// ParseLater parses text of the form RULE -> PLACE. The rule matches answers without a result. The
// place says where to ask for the result: at a path with {order} and {driver}, or at a URL in the
// answer, such as header:Location.
func ParseLater(text string) (*Later, error) {
	i := strings.LastIndex(text, openingArrow)
	if i < 0 {
		return nil, fmt.Errorf("%q: must be RULE -> PLACE, as in '202 -> header:Location' or '202 -> /results/{order}/{driver}'", text)
	}
	l := &Later{}
	var err error
	if l.undecided, err = ParseRule(strings.TrimSpace(text[:i])); err != nil {
		return nil, err
	}
	place := strings.TrimSpace(text[i+len(openingArrow):])
	if strings.HasPrefix(place, "/") {
		l.path, err = parsePathTemplate(place, grabSlots...)
	} else {
		l.from, err = ParseSource(place)
	}
	return l, err
}

func (l *Later) lacksResult(status int, header http.Header, body []byte) bool {
	return l.undecided.holds(&reply{status: status, header: header, body: body})
}

// checkLater returns an error if an answer could match both the rule in Later and another rule.
func (s *Shape) checkLater() error {
	if s.Later == nil {
		return nil
	}
	if s.AssumesGrabbed {
		return errors.New("this service may answer 200 to a loser too: set grabbed to a rule that only the answer to a winner matches")
	}
	for _, r := range []Rule{s.Grabbed, s.Taken, s.Busy} {
		if status, both := r.overlaps(s.Later.undecided); both {
			return fmt.Errorf("an answer with status %d matches the rule later and also one of grabbed, taken and busy: change one of them", status)
		}
	}
	return nil
}

// ResultURL returns the URL at which to ask for the result of a grab. If the answer already
// contains the result, undecided is false. If the URL is missing from the answer, it returns an
// error.
func (s *Shape) ResultURL(order, driver int64, status int, header http.Header, body []byte) (url string, undecided bool, err error) {
	if s.Later == nil || !s.Later.lacksResult(status, header, body) {
		return "", false, nil
	}
	if len(s.Later.path.parts) > 0 {
		return string(s.Later.path.grab(nil, order, driver, s.IDs)), true, nil
	}
	urls := s.Later.from.In(header, body)
	switch {
	case len(urls) == 1 && urls[0] != "":
		return urls[0], true, nil
	case s.Later.from.source == fromHeader && header.Get(s.Later.from.name) == "":
		return "", true, fmt.Errorf("the answer %d has no header %s (it has %s)", status, s.Later.from.name, strings.Join(slices.Sorted(maps.Keys(header)), ", "))
	}
	return "", true, fmt.Errorf("the answer %d has no URL of the result at the place after \"->\": %s", status, catalog.Shorten(strings.TrimSpace(string(body)), 200))
}

// IsResult reports whether the answer contains the result of a grab: grabbed, taken or busy.
func (s *Shape) IsResult(status int, header http.Header, body []byte) bool {
	if s.Later.lacksResult(status, header, body) {
		return false
	}
	switch s.Meaning(status, header, body).Outcome {
	case grab.Grabbed, grab.Taken, grab.Busy:
		return true
	}
	return false
}
