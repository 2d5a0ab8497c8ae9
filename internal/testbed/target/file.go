package target

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/testbed/infile"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// FileSchema is the JSON Schema (draft 2020-12) of a target file.
//
//go:embed target.schema.json
var FileSchema string

// Setting is a flag that a target file sets, with its value.
type Setting struct {
	Key, Value   string
	Line, Column int
}

// ReadFile reads a target file and returns the flags that it sets, in file order.
func ReadFile(path string) ([]Setting, error) { return read(path, parseFile) }

// read parses a file with parse. It prefixes errors with the path, so that they begin with
// PATH:LINE:COLUMN.
func read[T any](path string, parse func(text []byte) ([]T, error)) ([]T, error) {
	text, err := infile.Read(path, infile.Small)
	if err != nil {
		return nil, err
	}
	all, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return all, nil
}

// parseFile parses a target file into settings. Errors begin with LINE:COLUMN.
func parseFile(text []byte) ([]Setting, error) {
	members, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, m := range members {
		if known := keys(); !slices.Contains(known, m.key) {
			return nil, fmt.Errorf("%v: there is no key %q%s", m.at, m.key, catalog.Hint(m.key, known, "; there are "+strings.Join(known, ", ")))
		}
		found, err := m.settings()
		if err != nil {
			return nil, err
		}
		settings = append(settings, found...)
	}
	return settings, nil
}

// keys returns the keys of a target file, in alphabetical order.
var keys = sync.OnceValue(func() []string {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(FileSchema), &schema); err != nil {
		panic(err) // cannot happen, because the schema is embedded
	}
	return slices.Sorted(maps.Keys(schema.Properties))
})

var (
	// listKeys lists the keys whose value may be a list.
	listKeys = []string{"header", "migrate", "open-orders", "target-pid", "targets"}
	// joinedKeys lists the keys among listKeys whose flag takes the whole list as one value.
	joinedKeys = []string{"target-pid", "targets"}
)

// settings returns one setting for each value of a key.
func (m member) settings() (all []Setting, err error) {
	values := []ast.Node{m.value}
	if list, ok := m.value.(*ast.SequenceNode); ok && slices.Contains(listKeys, m.key) {
		values = list.Values
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%v: %s: the list is empty: add a value, or leave out the key", placeOf(m.value), m.key)
	}
	for i, node := range values {
		at := placeOf(node)
		text, err := textOf(node)
		if err == nil && slices.Contains(flags.Secrets, m.key) { // with ${NAME}, the secret can stay out of the file
			text, err = expand(text)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%v: %s: %w", at, m.key, err)
		case i > 0 && slices.Contains(joinedKeys, m.key):
			all[0].Value += "," + text
		default:
			all = append(all, Setting{m.key, text, at.line, at.column})
		}
	}
	return all, nil
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

func expand(text string) (string, error) {
	var missing error
	text = variable.ReplaceAllStringFunc(text, func(ref string) string {
		name := variable.FindStringSubmatch(ref)[1]
		value, ok := os.LookupEnv(name)
		if !ok {
			missing = fmt.Errorf("the environment variable %s is not set: set it before the run", name)
		}
		return value
	})
	return text, missing
}

// place is a line and a column in a file, both counted from 1.
type place struct{ line, column int }

// String returns the place as LINE:COLUMN, the prefix of error messages.
func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

// member is a key of a YAML mapping with its value.
type member struct {
	key   string
	at    place // place of the key
	value ast.Node
}

func placeOf(node ast.Node) place {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return place{t.Position.Line, max(1, t.Position.Column)}
	}
	return place{1, 1}
}

// membersOf returns the members of a mapping, in file order. For any other node, ok is false.
func membersOf(node ast.Node) (all []member, ok bool) {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		return nil, false
	}
	for pair := mapping.MapRange(); pair.Next(); {
		all = append(all, member{pair.Key().GetToken().Value, placeOf(pair.Key()), pair.Value()})
	}
	return all, true
}

// textOf returns a string, a number or a boolean as text. For any other node, it returns an error.
func textOf(node ast.Node) (string, error) {
	switch node := node.(type) {
	case *ast.StringNode:
		return node.Value, nil
	case *ast.LiteralNode:
		return node.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case ast.MapNode:
		return "", errors.New("must be a text, and not an object: put text that begins with a brace, or contains a colon and a space, in quotes")
	}
	return "", errors.New("must be a text, a number, true or false")
}

// parseYAML parses a YAML file that contains a mapping. Each error begins with LINE:COLUMN.
func parseYAML(text []byte) ([]member, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil {
		if all, ok := membersOf(file.Docs[0].Body); ok {
			return all, nil
		}
	}
	return nil, errors.New("1:1: the file must be a single YAML document with lines of the form NAME: VALUE")
}

var yamlPosition = regexp.MustCompile(`^\[(\d+:\d+)\] (.*)`)

const notAPair = "write a line as NAME: VALUE with a space after the colon, and indent the further lines of a long value"

// remedies explains how to correct common mistakes. An entry applies if the YAML parser's message
// contains its text. The first match wins.
var remedies = []struct{ says, do string }{
	{"non-map value", notAPair},
	{"unexpected key name", notAPair},
	{"mapping value is not allowed", "check the indentation of the next line, and put text that contains a colon and a space in quotes"},
	{"value is not allowed", "check the indentation"},
	{"'\t'", "indent with spaces instead of tabs"},
	{"tab character", "indent with spaces instead of tabs"},
	{"reserved character", "put the text in quotes"},
	{"unexpected directive", "put the text in quotes"},
	{"could not find end", "add the second quote"},
}

// syntaxError shortens a YAML parser error to one line, and adds how to correct it.
func syntaxError(err error) error {
	if m := yamlPosition.FindStringSubmatch(err.Error()); m != nil {
		for _, r := range remedies {
			if strings.Contains(m[2], r.says) {
				return fmt.Errorf("%s: %s: %s", m[1], m[2], r.do)
			}
		}
		return fmt.Errorf("%s: %s", m[1], m[2])
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("1:1: %s", first)
}

// ExpectationsSchema is the JSON Schema of a file with expected verdicts.
//
//go:embed expectations.schema.json
var ExpectationsSchema string

// Expectation is the verdict that the user expects for a locking strategy under a fault.
type Expectation struct {
	Strategy string
	Fault    catalog.Fault
	Verdict  catalog.Verdict
	Line     int
}

// ReadExpectations reads a file of expected verdicts, with one verdict per strategy, or per
// strategy and fault.
func ReadExpectations(path string) ([]Expectation, error) { return read(path, parseExpectations) }

var verdicts = []string{string(catalog.Safe), string(catalog.Unsafe), string(catalog.Stuck), string(catalog.Unknown)}

// parseExpectations parses the expected verdicts of a YAML file. A strategy has either one verdict
// or one for each fault.
func parseExpectations(text []byte) ([]Expectation, error) {
	strategies, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	var all []Expectation
	for _, strategy := range strategies {
		cells, perFault := membersOf(strategy.value)
		if !perFault {
			cells = []member{{string(catalog.NoFault), strategy.at, strategy.value}}
		}
		for _, cell := range cells {
			found, ok := catalog.FindFault(cell.key)
			if !ok || !slices.Contains(catalog.RunFaults, found.Name) {
				return nil, fmt.Errorf("%v: there is no fault %q%s", cell.at, cell.key, catalog.Hint(cell.key, faultNames(), ""))
			}
			at := placeOf(cell.value)
			verdict, err := textOf(cell.value)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%v: %s: the verdict %w", at, strategy.key, err)
			case !slices.Contains(verdicts, verdict):
				return nil, fmt.Errorf("%v: there is no verdict %q%s", at, verdict, catalog.Hint(verdict, verdicts, ""))
			}
			all = append(all, Expectation{strategy.key, found.Name, catalog.Verdict(verdict), at.line})
		}
	}
	return all, nil
}

func faultNames() []string {
	return catalog.Map(catalog.RunFaults, func(f catalog.Fault) string { return string(f) })
}
