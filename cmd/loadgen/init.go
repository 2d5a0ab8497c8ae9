package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"

	"github.com/goccy/go-yaml"
)

type initSettings struct {
	out, openAPI string
	yes          bool
	answers      keyValues
	in           *bufio.Reader
}

// keyValues maps each key of a target file to its values.
type keyValues map[string][]string

// stdin is the source of the user's answers. It is a variable so that tests can replace it.
var stdin io.Reader = os.Stdin

// describingFlags returns the flags that describe the user's service, which are also the keys of a
// target file.
func describingFlags() []flags.Flag {
	all := append(new(runSettings).targetFlags(), serverFlags(new(stack.Config))[0])
	return slices.DeleteFunc(all, func(f flags.Flag) bool { return f.Name == "target-file" })
}

func (s *initSettings) flags() []flags.Flag {
	return append([]flags.Flag{
		flags.New("out", "FILE", "the target file to write", flags.One(&s.out, flags.NonEmpty)),
		flags.New("openapi", "FILE", "the service's OpenAPI document, in JSON or YAML, from which init takes the calls", flags.One(&s.openAPI, readable)),
		flags.New("yes", "", "ask no questions, and use only the values from flags and from the service", flags.Switch(&s.yes)),
	}, describingFlags()...)
}

// parseInit parses the command line of init. It refuses to overwrite an existing file.
func parseInit(args []string) (*initSettings, error) {
	s := &initSettings{out: "target.yaml", answers: keyValues{}, in: bufio.NewReader(stdin)}
	line, err := flags.ParseFlags(s.flags(), args)
	if err != nil {
		return nil, err
	}
	for _, arg := range line.Flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		s.answers[name] = append(s.answers[name], value)
	}
	switch _, err := os.Stat(s.out); {
	case err == nil:
		return nil, flags.Usage("-out %s: the file already exists: choose another name", s.out)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, flags.Usage("-out %s: %w: choose another name", s.out, err)
	}
	return s, nil
}

// question asks the user for the value of one key in the target file.
type question struct {
	key, text string
	preset    string
	applies   func(keyValues) bool
}

func given(key string) func(keyValues) bool { return func(a keyValues) bool { return a[key] != nil } }

func lacks(key string) func(keyValues) bool { return func(a keyValues) bool { return a[key] == nil } }

func always(keyValues) bool { return true }

// questions lists the questions in the order in which init asks them. An empty answer selects the
// preset value; if there is none, the key is left out of the target file.
var questions = []question{
	{"service", "Command that starts one instance, with {port}, {redis}, {db} or {postgres}, and so on (empty if instances run already)", "", lacks("targets")},
	{"targets", "Base URLs of the running instances, separated by commas", "", lacks("service")},
	{"migrate", "Step that creates the tables: sql: STATEMENT, or a command such as sh -c 'mariadb -h {db_host} -P {db_port} -u {db_user} {db_name} < schema.sql' (empty if the service creates them)", "", given("service")},
	{"ready", "Path that returns 2xx once an instance is ready (empty: once it accepts connections)", "", given("service")},
	{"method", "Method of the grab", "POST", always},
	{"path", "Path of the grab, with {order} and possibly {driver}", "/orders/{order}/grab", always},
	{"body", "Body of the grab", `{"driver_id":{driver}}`, always},
	{"header", "Header of the grab, NAME: VALUE (empty if the grab needs none)", "", always},
	{"open-orders", "Call that opens new orders, as METHOD PATH BODY -> FIELD (enter - if there is no such call)", `POST /orders {"count":{count}} -> .first_id`, lacks("first-order")},
	{"first-order", "ID of the first open order", "1", lacks("open-orders")},
	{"db", "Database with the ledger, user:password@tcp(host:3306)/name (empty if there is none)", "", lacks("service")},
	{"ledger-query", "Query that returns the order and the driver of each grab, with WHERE order_id BETWEEN ? AND ? (empty if there is no ledger)", "", func(a keyValues) bool { return a["service"] != nil || a["db"] != nil }},
	{"lease", "Lifetime of the lock without renewal", "30s", func(a keyValues) bool { return !strings.Contains(strings.Join(a["service"], ""), "{ttl_ms}") }},
}

// execute asks the questions, writes the target file and tests the service with it. If the test
// fails because of a wrong setting, execute corrects the file and tests again.
func (s *initSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	presets := map[string]string{}
	if s.openAPI != "" {
		var err error
		if presets, err = readOpenAPI(s.openAPI); err != nil {
			return flags.Usage("-openapi %s: %w", s.openAPI, err)
		}
	}
	for _, q := range questions {
		if preset, found := presets[q.key]; found {
			q.preset = preset
		}
		if s.answers[q.key] == nil && q.applies(s.answers) {
			if err := s.ask(ctx, stdout, q); err != nil {
				return orInterrupted(err, stderr, "")
			}
		}
		if q.key == "targets" && s.answers["service"] == nil && s.answers["targets"] == nil {
			return flags.Usage("init: no service is named: give its command with -service, or its URLs with -targets")
		}
	}
	for tries := 0; ; tries++ {
		if err := s.write(); err != nil {
			return err
		}
		found, err := s.try(ctx, stdout, stderr, tries)
		if err != nil {
			return orInterrupted(err, stderr, "")
		}
		if found == nil {
			fmt.Fprintf(stdout, "wrote %s. To test your service with it, run: loadgen run -target-file %[1]s\n", s.out)
			return nil
		}
		fmt.Fprintf(stdout, "  ! %s\n", found.text)
		before := fmt.Sprint(s.answers)
		if tries < maxTries {
			if err := s.correct(ctx, stdout, found); err != nil {
				return orInterrupted(err, stderr, "")
			}
		}
		if fmt.Sprint(s.answers) == before {
			fmt.Fprintf(stdout, "wrote %s, but it still has the problem above: correct the file, then run: loadgen check -target-file %[1]s\n", s.out)
			return exitUsage
		}
	}
}

// maxTries limits how often init tests the target file before it gives up.
const maxTries = 8

// ask asks a question until the answer is valid, and stores the answer. It returns an error if ctx
// ends first.
func (s *initSettings) ask(ctx context.Context, w io.Writer, q question) error {
	all := describingFlags()
	value := all[slices.IndexFunc(all, func(f flags.Flag) bool { return f.Name == q.key })].Value
	for {
		reply, ended := "", s.yes
		if !s.yes {
			fmt.Fprintf(w, "%s [%s]: ", q.text, q.preset)
			var err error
			if reply, err = readLine(ctx, s.in); ctx.Err() != nil {
				return ctx.Err()
			}
			ended = err != nil
		}
		switch {
		case reply == "-":
			return nil
		case reply == "":
			reply = q.preset
		}
		if reply == "" {
			return nil
		}
		err := value.Set(reply)
		if err == nil {
			s.answers[q.key] = []string{reply}
			return nil
		}
		fmt.Fprintf(w, "  %v\n", err)
		if ended {
			return nil
		}
	}
}

// finding is the first problem that a test of the target file has shown.
type finding struct {
	experiment.Problem
	text    string // the problem with its place in the file
	answers []experiment.SeenAnswer
}

// try sends a few test requests with the settings in the target file, and returns nil if there is
// no problem. If the service has several strategies, it tries only one of them, because their
// responses have the same form. Each try uses a new order, because the earlier tries have grabbed
// theirs.
func (s *initSettings) try(ctx context.Context, stdout, stderr io.Writer, earlier int) (found *finding, err error) {
	run, err := parseCheck([]string{"-target-file", s.out})
	if err != nil {
		return nil, err
	}
	run.Log = stderr
	if run.Target.FirstOrder > 0 {
		run.Target.FirstOrder += int64(earlier)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tried := false
	err = experiment.Inspect(ctx, run.Config, func(p experiment.Preflight) {
		printPreflight(stdout, p)
		if len(p.Problems) > 0 {
			found = &finding{p.Problems[0], run.problem(p.Problems[0]), p.Answers}
		}
		tried = true
		stop()
	})
	problem, ok := errors.AsType[*experiment.Problem](err)
	switch {
	case tried:
		return found, nil
	case ok:
		return &finding{*problem, run.problem(*problem), nil}, nil
	case err != nil:
		return nil, run.refusal(err)
	}
	return nil, nil
}

// correct asks the user for better answers. It returns an error if ctx ends first.
func (s *initSettings) correct(ctx context.Context, w io.Writer, found *finding) error {
	rules := tellApart(found.Key, found.answers)
	if len(rules) == 0 && !s.yes {
		rules = map[string]string{found.Key: strings.Join(s.answers[found.Key], ",")}
	}
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		if err := s.ask(ctx, w, question{key: key, text: "Correct " + key, preset: rules[key]}); err != nil {
			return err
		}
	}
	return nil
}

// tellApart returns rules that distinguish the response to a successful grab from the response to a
// grab that came too late. It returns nil if the two are too similar. key names the rule that
// failed.
func tellApart(key string, seen []experiment.SeenAnswer) map[string]string {
	status := func(i int) string { return strconv.Itoa(seen[i].Status) }
	switch {
	case key != "grabbed" && key != "taken":
		return nil
	case len(seen) == 1 && seen[0].Status/100 == 2:
		return map[string]string{"grabbed": status(0)}
	case len(seen) < 3:
		return nil
	case seen[0].Status != seen[1].Status:
		return map[string]string{"grabbed": status(0), "taken": status(1)}
	}
	first, second, third := valuesOf(seen[0].Body), valuesOf(seen[1].Body), valuesOf(seen[2].Body)
	for _, path := range slices.Sorted(maps.Keys(first)) {
		a, b, c := first[path], second[path], third[path]
		if a != b && b != "" && (c == a || c == b) {
			return map[string]string{"grabbed": path + "==" + a, "taken": path + "==" + b}
		}
	}
	return nil
}

// valuesOf returns all values in a JSON response except objects, each as JSON text. The keys are the parts
// that a rule can name, such as json:.code.
func valuesOf(body []byte) map[string]string {
	all := map[string]string{}
	var doc any
	if json.Unmarshal(body, &doc) == nil {
		addValues(all, "json:.", doc)
	}
	return all
}

func addValues(all map[string]string, path string, value any) {
	if object, ok := value.(map[string]any); ok {
		for name, field := range object {
			addValues(all, strings.TrimSuffix(path, ".")+"."+name, field)
		}
		return
	}
	if text, err := json.Marshal(value); err == nil {
		all[path] = string(text)
	}
}

// write writes the target file with a comment for each key. It also writes a JSON schema, which
// helps editors to complete the keys.
func (s *initSettings) write() error {
	var schema struct {
		Properties map[string]struct {
			Description string
			Type        any
			Examples    []any
		}
	}
	if err := yaml.Unmarshal([]byte(target.FileSchema), &schema); err != nil {
		return err
	}
	const schemaFile = "target.schema.json"
	text := "# yaml-language-server: $schema=" + schemaFile + "\n"
	for _, f := range describingFlags() {
		about := schema.Properties[f.Name]
		text += "\n# " + about.Description + "\n"
		value, mark := about.Examples[0], "# "
		if values := s.answers[f.Name]; values != nil {
			value, mark = values, ""
			if about.Type == "integer" || about.Type == "boolean" || f.Name == "target-pid" {
				_ = yaml.Unmarshal([]byte("["+values[0]+"]"), &value) // the value is valid, because the flag has parsed it already
			}
			if list, ok := value.([]any); ok && len(list) == 1 {
				value = list[0]
			} else if len(values) == 1 && !ok {
				value = values[0]
			}
		}
		entry, err := yaml.Marshal(map[string]any{f.Name: value})
		if err != nil {
			return err
		}
		text += mark + strings.ReplaceAll(strings.TrimSpace(string(entry)), "\n", "\n"+mark) + "\n"
	}
	if err := replaceFile(filepath.Join(filepath.Dir(s.out), schemaFile), []byte(target.FileSchema)); err != nil {
		return err
	}
	return replaceFile(s.out, []byte(text))
}
