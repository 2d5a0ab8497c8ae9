package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/flags"
	"grablab/internal/service/instance"

	"grablab/internal/testbed/proc"
)

var update = flag.Bool("update", false, "write what the commands of the documents print into them")

// class says how to test a command of the documents.
type class string

const (
	isRun    class = "run"    // run the command
	isProved class = "prove"  // run the command, but only in make prove, because it is slow or needs real servers
	isParsed class = "parse"  // only parse the flags, because the command needs other servers or even more time
	isTest   class = "test"   // check that the package and the tests of a go test command exist
	isTarget class = "target" // check that the Makefile has the target
	isDocker class = "docker" // check that docker-compose.yml has the profiles and services
	isKube   class = "kube"   // check that deploy/kubernetes has the objects
)

// classes lists how to test each command. The first pattern that matches the whole command applies.
// A command without a match fails the test.
var classes = []struct {
	pattern string
	class   class
	exit    int
}{
	{`go run ./cmd/(loadgen|grabsvc)( \w+)? -h`, isRun, int(exitDone)},
	{`go run ./cmd/(loadgen|grabsvc) -version`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen report .*`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen baseline .*`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen compare .*`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen merge .*`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen explain .*`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen workshop( \d+)?`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen workshop .*`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen lab( .*)?`, isParsed, int(exitDone)}, // runs until it is stopped; TestLab runs it
	{`go run ./cmd/loadgen explore -file .*`, isProved, int(exitAssert)},
	{`go run ./cmd/loadgen explore .*-actors 3.*`, isProved, int(exitDone)},
	{`go run ./cmd/loadgen explore -strategies setnx`, isProved, int(exitDone)}, // takes half a minute
	{`go run ./cmd/loadgen explore .*`, isRun, int(exitDone)},
	{`go run ./cmd/loadgen -strategies setnx -orders 50 .*`, isRun, int(exitDone)},
	{`go run ./cmd/grabsvc -db .* &`, isRun, int(exitDone)},
	{`go run ./cmd/grabsvc -addr .*`, isParsed, int(exitDone)},
	{`curl .*`, isRun, int(exitDone)}, // sends a request to the instance that the same block starts

	{`go run ./cmd/loadgen init( .*)?`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen .*-(stack external|targets|target-file|out|resume) .*`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen .*(-faults all|-strategies all|-scenario peak).*`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen bench( -format benchstat)?`, isParsed, int(exitDone)},
	{`go run ./cmd/loadgen( .*)?`, isProved, int(exitDone)},

	{`go test \S+( .*)?`, isTest, int(exitDone)},
	{`make \w+( PARTS=.*)?`, isTarget, int(exitDone)},
	{`docker compose .*`, isDocker, int(exitDone)},
	{`(kubectl|docker build) .*`, isKube, int(exitDone)},
}

var (
	shellBlock = regexp.MustCompile("(?ms)^( *)```(\\w*)\\n(.*?)^ *```\\n")
	shownBlock = regexp.MustCompile("(?s)^\\s*<!-- output -->\\n(?:```text\\n(.*?)```\\n)?<!-- end -->")
)

// TestDocs tests every command of README.md and docs/, with this program instead of `go run`. If the
// document shows an output, it compares the output.
func TestDocs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(paths) < 8 {
		t.Fatalf("Glob: %q, %v", paths, err)
	}
	shell := newShell(t, root)
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "results", "README.md")) {
		t.Run(filepath.Base(path), func(t *testing.T) { shell.document(t, path) })
	}
}

// document tests the commands of one document.
func (s *shell) document(t *testing.T, path string) {
	text := string(read(t, path))
	compared := 0
	for _, at := range shellBlock.FindAllStringSubmatchIndex(text, -1) {
		lang, body := text[at[4]:at[5]], strings.TrimSpace(text[at[6]:at[7]])
		if slices.Contains([]string{"text", "go", "java", "lua", "sql"}, lang) {
			continue
		}
		if lang != "sh" {
			t.Errorf("a code block is marked %q: use sh for commands, text for their output, and go, java, lua or sql for code", lang)
			continue
		}
		commands := strings.Split(body, "\n")
		if strings.HasSuffix(commands[0], " &") { // this block starts a server and sends requests to it
			for _, c := range commands {
				classOf(t, strings.TrimSpace(c))
			}
			commands = []string{body}
		}
		for i, c := range commands {
			var shown *string
			if m := shownBlock.FindStringSubmatch(text[at[1]:]); m != nil && i == len(commands)-1 {
				shown = &m[1]
				compared++
			}
			t.Run(c, func(t *testing.T) { s.command(t, strings.TrimSpace(c), shown, path) })
		}
	}
	if n := strings.Count(text, "<!-- output -->"); n != compared {
		t.Errorf("of %d outputs, only %d directly follow a command", n, compared)
	}
}

func classOf(t *testing.T, command string) (class, int) {
	t.Helper()
	line, _, _ := strings.Cut(command, "\n")
	for _, c := range classes {
		if regexp.MustCompile("^(?:" + c.pattern + ")$").MatchString(line) {
			return c.class, c.exit
		}
	}
	t.Errorf("no pattern in classes matches this command: %s", line)
	return isParsed, int(exitDone)
}

func (s *shell) command(t *testing.T, command string, shown *string, document string) {
	class, exit := classOf(t, command)
	words := wordsOf(command)
	switch class {
	case isParsed:
		s.parse(t, words)
		return
	case isTest:
		s.findTests(t, words)
		return
	case isTarget:
		if !regexp.MustCompile(`(?m)^` + words[1] + `:`).Match(read(t, s.root, "Makefile")) {
			t.Errorf("there is no target %s", words[1])
		}
		return
	case isDocker:
		isService := func(word string) bool { return !strings.HasPrefix(word, "-") }
		service := words[2:][1+slices.IndexFunc(words[3:], isService)]
		if words[2] == "run" && !regexp.MustCompile(`(?m)^  `+service+`:`).Match(read(t, s.root, "docker-compose.yml")) {
			t.Errorf("there is no service %s", service)
		}
		return
	case isKube:
		all := manifests(t)
		for _, word := range words {
			kind, name, ok := strings.Cut(word, "/")
			if ok && slices.Contains([]string{"job", "statefulset"}, kind) && all[kind+"/"+name].Metadata.Name == "" {
				t.Errorf("there is no %s", word)
			}
			if _, err := os.Stat(filepath.Join(s.root, word, "kustomization.yaml")); err != nil && kind == "deploy" {
				t.Error(err)
			}
		}
		return
	case isProved:
		if os.Getenv("GRABLAB_PROVE") == "" {
			s.parse(t, words)
			t.Skip("it runs in make prove")
		}
	}
	code, stdout, stderr := s.run(t, command)
	if code != exit {
		t.Errorf("exit %d, want %d\n%s%s", code, exit, stdout, stderr)
	}
	if shown == nil || shape(stdout) == shape(*shown) {
		return
	}
	if !*update {
		t.Errorf("it prints\n%s\nnot\n%s\nif the new output is right, run: go test ./cmd/loadgen -run TestDocs -update", stdout, *shown)
		return
	}
	text := string(read(t, document))
	before, after, _ := strings.Cut(text, command+"\n```")
	block := shownBlock.FindString(after)
	after = strings.Replace(after, block, "\n\n<!-- output -->\n```text\n"+strings.TrimRight(stdout, "\n")+"\n```\n<!-- end -->", 1)
	if err := os.WriteFile(document, []byte(before+command+"\n```"+after), 0o644); err != nil {
		t.Error(err)
	}
}

var (
	figures = regexp.MustCompile(`(?:\d+m)?\d[\d.,]*(?:ns|µs|ms|s\b|m\b)?`)
	blanks  = regexp.MustCompile(`[ -]+`)
)

// shape replaces all figures in text, and collapses the spaces that align them.
func shape(text string) string {
	text = blanks.ReplaceAllString(figures.ReplaceAllString(text, "#"), " ")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// wordsOf splits a command into words in the same way as a shell. Text in single quotes is one word.
func wordsOf(command string) []string {
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	return words
}

// parse checks that the program accepts the flags of a command.
func (s *shell) parse(t *testing.T, words []string) {
	t.Helper()
	t.Chdir(s.root) // the command names files in this folder
	for _, name := range []string{"SHOP_TOKEN", "SHOP_PASSWORD"} {
		t.Setenv(name, "x")
	}
	program := words[2]
	words = words[3:]
	if i := slices.Index(words, "|"); i >= 0 {
		words = words[:i]
	}
	var err error
	switch {
	case program == "./cmd/grabsvc":
		_, err = instance.Parse(words)
	case len(words) > 0 && words[0] == "bench":
		_, err = parseBench(words[1:])
	case len(words) > 0 && words[0] == "workshop":
		_, err = parseWorkshop(words[1:])
	case len(words) > 0 && words[0] == "merge":
		_, err = flags.Parse(defaults("").flagsOfMerge(), words[1:])
	case len(words) > 0 && words[0] == "lab":
		_, err = parseLab(words[1:])
	case len(words) > 0 && words[0] == "explore":
		_, err = parseExplore(words[1:])
	case len(words) > 0 && words[0] == "check":
		_, err = parseCheck(words[1:])
	case len(words) > 0 && words[0] == "init":
		_, err = parseInit(words[1:])
	case slices.Contains(words, "-resume"): // the run to resume does not exist here; TestResume tests the flag
	default:
		_, err = parseRun(slices.DeleteFunc(words, func(w string) bool { return w == "run" }))
	}
	if err != nil {
		t.Error(err)
	}
}

// findTests checks that the package and the tests of a go test command exist.
func (s *shell) findTests(t *testing.T, words []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.root, words[2], "*_test.go"))
	if err != nil || files == nil {
		t.Fatalf("Glob(%s): %v", words[2], err)
	}
	var all bytes.Buffer
	for _, f := range files {
		all.Write(read(t, f))
	}
	if i := slices.Index(words, "-run"); i >= 0 {
		for name := range strings.SplitSeq(words[i+1], "|") {
			if !strings.Contains(all.String(), "func "+name) {
				t.Errorf("%s has no %s", words[2], name)
			}
		}
	}
}

// shell runs commands in a folder that links to the checkout but has its own results folder. In that
// folder, the test binary replaces `go run`.
type shell struct{ root, dir, bin, addr string }

func newShell(t *testing.T, root string) *shell {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	goExe, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{root: root, dir: t.TempDir(), bin: t.TempDir(), addr: free.Addr().String()}
	goCommand := fmt.Sprintf(`#!/bin/bash
case "$1 $2" in
"run ./cmd/loadgen") shift 2; export %[1]s=1; exec -a /go-build/loadgen %[2]q "$@";;
"run ./cmd/grabsvc") shift 2; export %[1]s=1; exec %[2]q instance "$@";;
esac
exec %[3]q "$@"
`, asMain, exe, goExe)
	err = errors.Join(free.Close(),
		os.WriteFile(filepath.Join(s.bin, "go"), []byte(goCommand), 0o755),
		os.Mkdir(filepath.Join(s.dir, "results"), 0o755),
		os.Symlink(filepath.Join(root, "results", "reference-rush-local"), filepath.Join(s.dir, "results", "latest")))
	for _, name := range []string{"internal", "cmd", "docs", "Makefile", "docker-compose.yml"} {
		err = errors.Join(err, os.Symlink(filepath.Join(root, name), filepath.Join(s.dir, name)))
	}
	references, _ := filepath.Glob(filepath.Join(root, "results", "reference-*"))
	for _, path := range references {
		err = errors.Join(err, os.Symlink(path, filepath.Join(s.dir, "results", filepath.Base(path))))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a single command, or a script whose first command starts a server.
func (s *shell) run(t *testing.T, command string) (code int, stdout, stderr string) {
	t.Helper()
	text := strings.NewReplacer("localhost:8004", s.addr, "/tmp/grab.db", filepath.Join(s.dir, "grab.db")).Replace(command)
	if strings.Contains(command, " &\n") {
		text = "set -e; trap 'kill %1; wait' EXIT\n" + strings.ReplaceAll(text, "curl ", "curl --fail ")
	}
	cmd := exec.Command("bash", "-c", text)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "GRABSVC_ADDR="+s.addr)
	if strings.Contains(command, " -file ") { // the program compiles this file in the checkout
		cmd.Dir = s.root
	}
	proc.NewProcessGroup(cmd)
	giveUp := time.AfterFunc(10*time.Minute, func() { proc.KillRest(cmd.Process.Pid) })
	defer giveUp.Stop()
	return output(t, cmd)
}
