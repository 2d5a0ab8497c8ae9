package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExploreBadUsage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"broken.txt":   "strategy setnx\nactors A@1\nnodes redis\nttl 3s\nA acquires\n",
		"other.go":     "package main\n",
		"nothing.go":   "package lock\n\nvar x = 1\n",
		"noname.go":    "package lock\n\nvar x = Strategy{Title: \"x\"}\n",
		"syntax.go":    "package lock\n\nvar x = Strategy{\n",
		"mine_test.go": "package lock\n\nvar x = Strategy{Name: \"x\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for args, want := range map[string]string{
		"stray":              `"stray" is no flag`,
		"-strategy setnx":    "did you mean -strategies?",
		"-strategies setnxx": "did you mean setnx?",
		"-strategies setnx,": "none of them empty",
		"-faults expirey":    "want one of expiry, pause",
		"-property winner":   "want one of one-winner",
		"-actors 5":          "want a whole number from 2 to 4",
		"-preemptions -1":    "want a whole number from 0",
		"-seconds soon":      "want a duration",
		"-guard none":        "want one of naive",
		"-format dot":        "want one of text, mermaid, json",
		"-format mermaid -strategies setnx,mutex": "name one strategy",
		"-replay none.txt":                        "no such file",
		"-replay broken.txt":                      `broken.txt: line 5: "A acquires"`,
		"-replay broken.txt -faults pause":        "-faults cannot stand with -replay",
		"-file none.go":                           "no such file",
		"-file broken.txt":                        "want a Go file",
		"-file mine_test.go":                      "that is no test",
		"-file other.go":                          "want package lock",
		"-file nothing.go":                        "declares no strategy",
		"-file noname.go":                         "declares no strategy",
		"-file syntax.go":                         "syntax.go:3:19",
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"explore"}, strings.Fields(args)...), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs.String(), want)
		}
		if out.Len() > 0 {
			t.Errorf("%s: printed %q", args, &out)
		}
	}
}

func TestExploreHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"explore", "-h"}, &out, &errs); code != exitDone {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	for _, o := range newExploreSettings().options() {
		if !strings.Contains(out.String(), "-"+o.name+" ") {
			t.Errorf("-%s is not told", o.name)
		}
	}
}

const example = "../../internal/explore/testdata/own/setnx_healing.go"

// The example of a lock of one's own is found, and fits into package lock.
func TestOwnStrategy(t *testing.T) {
	own, err := declared(example)
	if err != nil || len(own) != 1 || own[0] != (ownStrategy{"healing", "setnx-healing"}) {
		t.Fatalf("got %v, %v", own, err)
	}
	here, err := filepath.Abs("../../internal/grab/lock")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := writeOverlay(t.TempDir(), here, example, own)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, modulePath+"/internal/grab/lock").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
