package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"grablab/internal/measure/experiment"
)

// TestInit checks that init writes a usable target file, and that it derives the rules for grabbed and
// taken from the responses of the service.
func TestInit(t *testing.T) {
	t.Chdir(t.TempDir())
	targets := booth(t)
	calls := []string{"-open-orders", "/booth/orders -> .id", "-path", "/booth/{order}"}
	for i, tt := range []struct {
		args  []string
		input string
		exit  exitCode
		says  []string // parts of the output and of the file
	}{
		{append(calls, "-targets", targets, "-yes"), "", exitDone, []string{"run: loadgen run", "grabbed: json:.code==0", "taken: json:.code==1", "# busy: "}},
		{nil, "\n" + targets + "\n\nbooth\n/booth/{order}\n\n\n/booth/orders -> .id\n\n\n\n\n", exitDone, []string{"must be a path after the base URL", "run: loadgen run", "grabbed: json:.code==0", "path: /booth/{order}"}},
		{[]string{"-targets", targets, "-open-orders", "/booth/orders -> .id"}, "\n/boot/{order}\n\n\n\n\n/booth/{order}\n\n\n", exitDone, []string{"path: the first driver of a fresh order was answered with HTTP 404", "run: loadgen run"}},
		{[]string{"-targets", targets, "-open-orders", "/booth/orders -> .id", "-yes"}, "", exitUsage, []string{"still has the problem above"}},
		{append(calls[2:4:4], "-targets", targets, "-yes", "-open-orders", "-", "-first-order", "700", "-probe-drivers", "501", "-idempotent"), "", exitUsage, []string{"-open-orders -: "}},
		{append(calls[2:4:4], "-targets", targets, "-yes", "-first-order", "700", "-probe-drivers", "501", "-idempotent"), "", exitDone, []string{"first-order: 700\n", "idempotent: true\n", "grabbed: json:.code==0"}},
		{nil, "\n\n", exitUsage, []string{"no service is named"}},
		{[]string{"-lease", "5s"}, "no-such-program {port} {db}\nsql:\nsh -c 'create {db_host} < x.sql'\n", exitUsage, []string{"Step that creates the tables", "a statement must follow sql:", "migrate: sh -c 'create {db_host} < x.sql'", "starting the local stack", "migrate: the migration step"}},
		{append(calls, "-targets", targets, "-yes", "-out", "0.yaml"), "", exitUsage, []string{"0.yaml: the file already exists"}},
	} {
		stdin = strings.NewReader(tt.input)
		out := string(rune('0'+i)) + ".yaml"
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), append([]string{"init", "-out", out}, tt.args...), &stdout, &stderr)
		text, _ := os.ReadFile(out)
		all := stdout.String() + stderr.String() + string(text)
		for _, want := range tt.says {
			if code != int(tt.exit) || !strings.Contains(all, want) {
				t.Errorf("%q %q: exit %d, want %d and …%s…\n%s", tt.args, tt.input, code, tt.exit, want, all)
			}
		}
	}
	stdin = os.Stdin
}

// TestInitEndsEarly checks that a signal ends init even while it waits for an answer. Before the first
// question, init must refuse paths that it cannot write and create a missing folder.
func TestInitEndsEarly(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a-file", "")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stdin = r
	defer func() { stdin = os.Stdin }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		args []string
		exit exitCode
		says string
	}{
		{[]string{"-targets", "http://127.0.0.1:1", "-out", "t.yaml"}, exitInterrupted, "interrupted"},
		{[]string{"-out", "a-file"}, exitUsage, "-out a-file: the file already exists: choose another name"},
		{[]string{"-out", "a-file/t.yaml"}, exitUsage, "a-file/t.yaml: not a directory: choose another name"},
		{[]string{"-targets", "http://127.0.0.1:1", "-yes", "-out", "new/t.yaml"}, exitInterrupted, "interrupted"},
	} {
		var stdout, stderr bytes.Buffer
		code := exitOf(ctx, append([]string{"init"}, tt.args...), &stdout, &stderr)
		if code != int(tt.exit) || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%q: exit %d, want %d and …%s…\n%s", tt.args, code, tt.exit, tt.says, &stderr)
		}
	}
	if _, err := os.Stat("t.yaml"); err == nil {
		t.Error("an interrupted command wrote its file")
	}
	if _, err := os.Stat("new/t.yaml"); err != nil {
		t.Errorf("init did not create the missing folder: %v", err)
	}
}

func TestTellApart(t *testing.T) {
	answer := func(status int, body string) experiment.SeenAnswer {
		return experiment.SeenAnswer{Status: status, Body: []byte(body)}
	}
	for _, tt := range []struct {
		key            string
		first, second  experiment.SeenAnswer
		third          experiment.SeenAnswer
		grabbed, taken string
	}{
		{"taken", answer(201, ""), answer(422, ""), answer(422, ""), "201", "422"},
		{"grabbed", answer(200, `{"at":1,"data":{"won":true}}`), answer(200, `{"at":2,"data":{"won":false}}`), answer(200, `{"at":3,"data":{"won":false}}`), "json:.data.won==true", "json:.data.won==false"},
		{"grabbed", answer(200, `{"s":"ok"}`), answer(200, `{"s":"gone"}`), answer(200, `{"s":"ok"}`), `json:.s=="ok"`, `json:.s=="gone"`},
		{"grabbed", answer(200, `{"at":1}`), answer(200, `{"at":2}`), answer(200, `{"at":3}`), "", ""},
		{"grabbed", answer(200, "won"), answer(200, "lost"), answer(200, "lost"), "", ""},
		{"grabbed", answer(200, "<c>0</c>"), answer(200, "<c>7</c>"), answer(200, "<c>7</c>"), "", ""},
		{"path", answer(201, ""), answer(422, ""), answer(422, ""), "", ""},
	} {
		got := tellApart(tt.key, []experiment.SeenAnswer{tt.first, tt.second, tt.third})
		if got["grabbed"] != tt.grabbed || got["taken"] != tt.taken {
			t.Errorf("%s %s: %v, want %s and %s", tt.first.Body, tt.second.Body, got, tt.grabbed, tt.taken)
		}
	}
	// With fewer than three answers, there is a rule only if a single grab succeeded.
	for n := range 3 {
		for _, status := range []int{199, 200, 299, 300} {
			want := ""
			if n == 1 && status/100 == 2 {
				want = strconv.Itoa(status)
			}
			if got := tellApart("grabbed", slices.Repeat([]experiment.SeenAnswer{answer(status, "")}, n)); got["grabbed"] != want || got["taken"] != "" {
				t.Errorf("%d answers with status %d: %v, want %q", n, status, got, want)
			}
		}
	}
}

func TestReadOpenAPI(t *testing.T) {
	got, err := readOpenAPI("../../internal/grab/openapi.json")
	want := map[string]string{
		"method": "POST", "path": "/orders/{order}/grab", "body": `{"driver_id":{driver}}`, "open-orders": `POST /orders {"count":{count}} -> .first_id`,
	}
	for key, text := range want {
		if err != nil || got[key] != text {
			t.Errorf("value of %s: %q, want %q (%v)", key, got[key], text, err)
		}
	}
	t.Chdir(t.TempDir())
	write(t, "api.yaml", `
paths:
  /v1/rides:
    post:
      requestBody: {content: {application/json: {schema: {properties: {city: {type: string}}}}}}
      responses: {"201": {content: {application/json: {schema: {properties: {rideId: {type: integer}}}}}}}
  /v1/rides/{rideId}/riders/{riderId}:
    put: {operationId: acceptRide}
`)
	got, err = readOpenAPI("api.yaml")
	if err != nil || got["path"] != "/v1/rides/{order}/riders/{driver}" || got["method"] != "PUT" || got["open-orders"] != `POST /v1/rides {"city":"1"} -> .rideId` {
		t.Errorf("readOpenAPI: %q, %v", got, err)
	}
	for _, text := range []string{"{", "paths: {/a: {post: {}}}"} {
		write(t, "api.yaml", text)
		if _, err := readOpenAPI("api.yaml"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
