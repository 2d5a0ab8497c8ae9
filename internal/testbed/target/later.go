package target

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab"
)

// Later describes how to get results from a service that responds before it knows them. The client must
// then ask for each result with another request.
type Later struct {
	undecided Rule     // matches responses that do not contain the result
	path      Template // result path, relative to the base URL, or its part before the ID; empty if from is the whole URL
	from      *Source  // where the response contains the result URL, or the ID in the path; nil if the path has no ID
	rest      Template // the part of the path after the ID
}

// idInPath matches a path's placeholder for an ID from the response, such as {json:.id} or {.id}.
var idInPath = regexp.MustCompile(`\{((?:json:|xml:|text:|header:|\.)[^}]*)\}`)

// ParseLater parses text of the form RULE -> PLACE. The rule matches responses without a result. The
// place says where to ask for the result. It is either a URL in the response, such as header:Location,
// or a path. A path may contain {order}, {driver} and an ID from the response, such as {json:.id}.
func ParseLater(text string) (*Later, error) {
	i := strings.LastIndex(text, openingArrow)
	if i < 0 {
		return nil, fmt.Errorf("%q: must be RULE -> PLACE, as in '202 -> header:Location', '202 -> /results/{json:.id}' or '202 -> /results/{order}/{driver}'", text)
	}
	l := &Later{}
	var err error
	if l.undecided, err = ParseRule(strings.TrimSpace(text[:i])); err != nil {
		return nil, err
	}
	place := strings.TrimSpace(text[i+len(openingArrow):])
	if strings.HasPrefix(place, "/") {
		id := idInPath.FindStringSubmatchIndex(place)
		if id == nil {
			l.path, err = parsePathTemplate(place, grabSlots...)
			return l, err
		}
		var errBefore, errAfter error
		l.path, errBefore = parsePathTemplate(place[:id[0]], grabSlots...)
		l.rest, errAfter = ParseTemplate(place[id[1]:], grabSlots...)
		if err = cmp.Or(errBefore, errAfter); err != nil {
			return nil, err
		}
		l.rest.isURL = true
		place = place[id[2]:id[3]]
	}
	from, err := ParseSource(place)
	l.from = &from
	return l, err
}

func (l *Later) lacksResult(status int, header http.Header, body []byte) bool {
	return l.undecided.holds(&reply{status: status, header: header, body: body})
}

// checkLater returns an error if a response could match both the rule in Later and another rule.
func (s *Shape) checkLater() error {
	if s.Later == nil {
		return nil
	}
	if s.AssumesGrabbed {
		return errors.New("this service may respond with 200 to a loser too: set grabbed to a rule that matches only a winner's response, or to 200 if no loser gets it")
	}
	for _, r := range []Rule{s.Grabbed, s.Taken, s.Busy} {
		if status, both := r.overlaps(s.Later.undecided); both {
			return fmt.Errorf("a response with status %d matches the rule later and also one of grabbed, taken and busy: change one of them", status)
		}
	}
	return nil
}

// ResultURL returns the URL at which to ask for a grab's result. base is the URL of the instance. If
// the response already contains the result, undecided is false. If the URL is missing from the
// response, it returns an error.
func (s *Shape) ResultURL(base string, order, driver int64, status int, header http.Header, body []byte) (url string, undecided bool, err error) {
	if s.Later == nil || !s.Later.lacksResult(status, header, body) {
		return "", false, nil
	}
	path, from := s.Later.path.grab(nil, order, driver, s.IDs), s.Later.from
	under := func(path []byte) string {
		if bytes.HasPrefix(path, []byte("/")) {
			return strings.TrimSuffix(base, "/") + string(path)
		}
		return string(path)
	}
	if from == nil {
		return under(path), true, nil
	}
	what := "URL of the result"
	if len(path) > 0 {
		what = "id of the result"
	}
	found := from.In(header, body)
	switch {
	case len(found) == 1 && found[0] != "" && len(path) > 0:
		path = append(path, escapedIn(path, found[0], false)...)
		return under(s.Later.rest.grab(path, order, driver, s.IDs)), true, nil
	case len(found) == 1 && found[0] != "":
		return found[0], true, nil
	case from.source == fromHeader && header.Get(from.name) == "":
		return "", true, fmt.Errorf("the answer %d has no header %s (it has %s)", status, from.name, strings.Join(slices.Sorted(maps.Keys(header)), ", "))
	}
	return "", true, fmt.Errorf("the answer %d has no %s at the place after \"->\": %s", status, what, catalog.Shorten(strings.TrimSpace(string(body)), 200))
}

// IsResult reports whether the response contains a grab's result: grabbed, taken or busy. A response to
// a client that asks too early or too often is never a result, even if its status usually means busy.
func (s *Shape) IsResult(status int, header http.Header, body []byte) bool {
	if status == http.StatusTooManyRequests || status == http.StatusTooEarly || s.Later.lacksResult(status, header, body) {
		return false
	}
	switch s.Meaning(status, header, body).Outcome {
	case grab.Grabbed, grab.Taken, grab.Busy:
		return true
	}
	return false
}
