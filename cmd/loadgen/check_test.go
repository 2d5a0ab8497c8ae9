package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/fleet"
)

// booth starts two instances of a user's service and returns their URLs, separated by a comma.
// POST /booth/orders opens orders, and POST /booth/ID grabs one. If strategies is not empty, clients can
// switch between them.
func booth(t *testing.T, strategies ...string) (targets string) {
	var mu sync.Mutex
	next := 1
	taken := map[string]bool{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id, isGrab := strings.CutPrefix(r.URL.Path, "/booth/")
		switch {
		case r.URL.Path == "/strategies" && len(strategies) > 0:
			json.NewEncoder(w).Encode(strategies)
		case r.URL.Path == "/strategy" && len(strategies) > 0:
			fmt.Fprint(w, `{"lease_ms":50}`)
		case strings.HasPrefix(r.URL.Path, "/broken/"):
			w.WriteHeader(http.StatusInternalServerError)
		case r.Method == http.MethodPost && id == "orders":
			fmt.Fprintf(w, `{"id":%d}`, next)
			next += 1000
		case r.Method == http.MethodPost && isGrab:
			fmt.Fprintf(w, `{"code":%d}`, map[bool]int{true: 1, false: 0}[taken[id]])
			taken[id] = true
		default:
			http.NotFound(w, r)
		}
	})
	var urls []string
	for range 2 {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ",")
}

// TestCheck checks that the commands check and run name the wrong line of a target file, and accept a
// correct file.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	head := fmt.Sprintf("targets: %s\nopen-orders: /booth/orders -> .id\n", booth(t))
	for i, tt := range []struct {
		rest string
		exit exitCode
		says string
	}{
		{"path: /booth/{order}\ngrabbed: json:.code==0\ntaken: json:.code==1\n", exitDone, "nothing to correct"},
		{"grabbed: 200\npath: /boot/{order}\nmethod: PUT\n", exitUsage, "my.yaml:4:7: path: the first driver of a fresh order was answered with HTTP 404"},
		{"path: /broken/{order}\nbody: x\n", exitUsage, "my.yaml:4:7: body: the first driver of a fresh order was answered with HTTP 500"},
		{"path: /booth/{order}\n", exitUsage, "my.yaml: grabbed is not set: two drivers of order"},
		{"path: /booth/{order}\ngrabbed: json:.code==0\ntaken: 409\n", exitUsage, `my.yaml:5:8: taken: the response to a driver who comes too late matches no rule: HTTP 200 {"code":1}`},
	} {
		write(t, "my.yaml", head+tt.rest)
		for _, command := range [][]string{{"check"}, {"run", "-orders", "3", "-drivers", "4", "-settle", "50ms", "-quiet", "-out", fmt.Sprint(i)}} {
			var stdout, stderr bytes.Buffer
			code := exitOf(context.Background(), append(command, "-target-file", "my.yaml"), &stdout, &stderr)
			says := stdout.String() + stderr.String()
			if command[0] == "run" && tt.exit == exitDone {
				if code != int(exitDone) {
					t.Errorf("run, %q: exit %d\n%s", tt.rest, code, says)
				}
				continue
			}
			if code != int(tt.exit) || !strings.Contains(says, tt.says) {
				t.Errorf("%s, %q: exit %d, want %d and …%s…\n%s", command[0], tt.rest, code, tt.exit, tt.says, says)
			}
		}
	}
}

// TestTriedStrategies checks that check tries every strategy of a service and announces how many are
// left, while init tries only the first and announces none.
func TestTriedStrategies(t *testing.T) {
	t.Chdir(t.TempDir())
	common := []string{"-targets", booth(t, "one", "two", "three"), "-open-orders", "/booth/orders -> .id", "-path", "/booth/{order}", "-grabbed", "json:.code==0", "-taken", "json:.code==1"}
	for _, tt := range []struct {
		command []string
		want    []string
	}{
		{[]string{"check"}, []string{"one", "two", "three"}},
		{[]string{"init", "-yes", "-out", "t.yaml"}, []string{"one"}},
	} {
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), append(tt.command, common...), &stdout, &stderr)
		var tried []string
		for line := range strings.Lines(stdout.String()) {
			if name := strings.TrimSpace(line); slices.Contains([]string{"one", "two", "three"}, name) {
				tried = append(tried, name)
			}
		}
		announced := strings.Contains(stderr.String(), "trying 2 more strategies")
		if code != int(exitDone) || !slices.Equal(tried, tt.want) || announced != (len(tt.want) > 1) || strings.Contains(stderr.String(), "trying 3") {
			t.Errorf("%q: exit %d, tried %q, want %q\n%s%s", tt.command, code, tried, tt.want, &stdout, &stderr)
		}
	}
}

// TestCheckInterrupted checks that Ctrl-C during the start of the servers counts as an interruption,
// not as a failure to start them.
func TestCheckInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := exitOf(ctx, []string{"check", "-service", "sleep {port}"}, &stdout, &stderr); code != int(exitInterrupted) || !strings.HasSuffix(stderr.String(), "interrupted\n") {
		t.Errorf("exit %d: %s%s", code, &stdout, &stderr)
	}
}

// TestPrintPreflight checks that the output marks a second driver who wins the same order.
func TestPrintPreflight(t *testing.T) {
	var b bytes.Buffer
	printPreflight(&b, experiment.Preflight{Strategy: "foreign", Answers: []experiment.SeenAnswer{
		{Question: "first driver", Answer: "HTTP 200", Meaning: "grabbed"}, {Question: "second driver", Answer: "HTTP 200", Meaning: "grabbed", Wrong: true},
	}})
	if want := "foreign\n  first driver     HTTP 200: grabbed\n  ! second driver  HTTP 200: grabbed\n"; b.String() != want {
		t.Errorf("printPreflight printed %q, want %q", &b, want)
	}
}

func TestReaches(t *testing.T) {
	got := reaches([]experiment.Reach{
		{Fault: "slow", Why: "it needs a hook"},
		{Fault: "pause", Before: []int{1, 2, 3, 5}, After: []int{1, 2, 3, 5}},
		{Fault: "crash", Before: []int{1, 2, 3, 5}, After: []int{1, 2, 3, 5}},
		{Fault: "latency", Before: []int{1}},
		{Fault: "hang", After: []int{2}},
	})
	want := [][2]string{{"hang", "after 2"}, {"pause, crash", "before and after 1-3, 5"}, {"latency", "before 1"}, {"slow", "nowhere: it needs a hook"}}
	if !slices.Equal(got, want) {
		t.Errorf("reaches returned %q, want %q", got, want)
	}
}

// TestPreflightKeepsCellsWithoutFault checks that a problem that matters only under faults does not stop
// a run that also has tests without a fault.
func TestPreflightKeepsCellsWithoutFault(t *testing.T) {
	p := experiment.Preflight{Problems: []experiment.Problem{{Key: "service", Text: "no write was seen", Faults: true}}}
	for _, tt := range []struct {
		faults []catalog.Fault
		stops  bool
	}{
		{[]catalog.Fault{catalog.NoFault}, false},
		{[]catalog.Fault{catalog.NoFault, catalog.Crash}, false},
		{[]catalog.Fault{catalog.Crash}, true},
	} {
		s := &runSettings{}
		s.Service, s.Faults = &fleet.Service{}, tt.faults
		if err := s.checkPreflight(p); (err != nil) != tt.stops {
			t.Errorf("%v: %v, want an error: %v", tt.faults, err, tt.stops)
		}
	}
}

// TestPlaceOfAProblem checks that a problem names the place of the wrong value. This place is a line of
// the target file or a flag on the command line. If neither sets the value, the problem names the
// target file.
func TestPlaceOfAProblem(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "my.yaml", "targets: http://127.0.0.1:1,http://127.0.0.1:2\npath: /a/{order}\nbusy: 423\n")
	for _, tt := range []struct {
		args []string
		want map[string]string // by key
	}{
		{[]string{"-target-file", "my.yaml", "-taken", "409", "-busy", "429"}, map[string]string{
			"path": "my.yaml:2:7: path: wrong", "taken": "-taken: wrong", "busy": "-busy: wrong", "grabbed": "my.yaml: grabbed is not set: wrong",
		}},
		{[]string{"-targets", "http://127.0.0.1:1,http://127.0.0.1:2", "-taken", "409"}, map[string]string{"taken": "-taken: wrong", "grabbed": "-grabbed: wrong"}},
	} {
		s, err := parseRun(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range tt.want {
			if got := s.problem(experiment.Problem{Key: key, Text: "wrong"}); got != want {
				t.Errorf("%q: the message is %q, want %q", tt.args, got, want)
			}
		}
	}
}
