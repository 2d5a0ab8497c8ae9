package lab_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"grablab/internal/present/lab"
)

var postRoute = regexp.MustCompile(`"POST (/[^ "]*)"`)

// TestEveryPostIsGuarded checks that each route that changes something refuses requests with a missing or
// wrong token, and requests from another origin or host. It reads the routes from the source.
func TestEveryPostIsGuarded(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range postRoute.FindAllStringSubmatch(string(text), -1) {
			routes = append(routes, strings.ReplaceAll(m[1], "{n}", "5"))
		}
	}
	if len(routes) < 9 {
		t.Fatalf("only %d routes were found: %q", len(routes), routes)
	}
	url := start(t, lab.Config{})
	own := token(t, url)
	for _, route := range routes {
		for name, tt := range map[string]struct {
			header  map[string]string
			refused bool
		}{
			"no token":                    {nil, true},
			"an empty token":              {map[string]string{"X-Lab-Token": ""}, true},
			"another token":               {map[string]string{"X-Lab-Token": own[1:] + "x"}, true},
			"the token, another origin":   {map[string]string{"X-Lab-Token": own, "Origin": "http://evil.example"}, true},
			"the token, another host":     {map[string]string{"X-Lab-Token": own, "Host": "evil.example"}, true},
			"the page's origin, no token": {map[string]string{"Origin": url}, true},
			"the token, the same origin":  {map[string]string{"X-Lab-Token": own, "Origin": url}, false},
			"the token, no origin":        {map[string]string{"X-Lab-Token": own}, false},
		} {
			status, text := post(t, url+route, `{"no such field":1}`, tt.header)
			if (status == http.StatusForbidden) != tt.refused || status == http.StatusOK {
				t.Errorf("%s with %s: %d %s", route, name, status, text)
			}
		}
	}
}
