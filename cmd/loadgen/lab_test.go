package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"grablab/internal/present/report"
)

func TestLabUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"a.go", "b.go"}, "give at most one file"},
		{[]string{"-stack", "external"}, "-stack"},
		{[]string{"-addr", ""}, "-addr"},
		{[]string{"-addr", "0.0.0.0:0"}, "is not on loopback"},
		{[]string{"-addr", "127.0.0.1"}, "missing port in address: use another one, such as 127.0.0.1:0"},
		{[]string{"no.go"}, "no.go"},
	} {
		code, stdout, stderr := output(t, loadgen(t, append([]string{"lab"}, tt.args...)...))
		if code != int(exitUsage) || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("lab %q: exit %d, %q, want one that says %s", tt.args, code, stderr, tt.want)
		}
	}
}

// TestLab checks that the lab prints its URL first, and runs a search from its page. After a
// signal, it must stop with all its instances.
func TestLab(t *testing.T) {
	cmd := loadgen(t, "lab", "-addr", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	said := bufio.NewReader(stdout)
	line, err := said.ReadString('\n')
	url := strings.Fields(strings.TrimPrefix(line, "the lab is "))
	if err != nil || len(url) == 0 || !strings.HasPrefix(url[0], "http://127.0.0.1:") {
		_ = cmd.Process.Kill()
		t.Fatalf("it says %q, %v", line, err)
	}
	page := get(t, url[0])
	_, rest, _ := strings.Cut(page, `name="lab-token" content="`)
	token, _, _ := strings.Cut(rest, `"`)

	ask := func(path, body string) string {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, url[0]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Lab-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var found report.Found
	if text := ask("/api/explore", `{"strategy":"setnx","actors":2,"faults":["pause"]}`); json.Unmarshal([]byte(text), &found) != nil ||
		!strings.HasPrefix(found.Answer, "setnx breaks one-winner in 11 steps.") || len(found.Failures) == 0 || found.Failures[0].Drawing == nil {
		t.Errorf("found %s", text)
	}

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, said)
		ended <- cmd.Wait()
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the lab ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("the lab did not end after a signal")
	}
	if out, err := exec.Command("pgrep", "-f", "--", "-lab "+url[0]).Output(); err == nil {
		t.Errorf("instances of the lab still run: processes %s", out)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
