package target

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/testbed/infile"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// FileSchema is the JSON Schema (draft 2020-12) of a target file.
//
//go:embed target.schema.json
var FileSchema string

// ExpectationsSchema is the JSON Schema of a file with expected verdicts.
//
//go:embed expectations.schema.json
var ExpectationsSchema string

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
	root, err := parseYAML(text, fileSchema())
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, m := range root.members() {
		for i, v := range m.values() {
			text := v.text()
			if slices.Contains(flags.Secrets, m.key) { // with ${NAME}, the secret can stay out of the file
				if text, err = expand(text); err != nil {
					return nil, fmt.Errorf("%v: %s: %w", v.at(), m.key, err)
				}
			}
			if i > 0 && (m.key == "targets" || m.key == "target-pid") { // these flags take the whole list as one value
				settings[len(settings)-1].Value += "," + text
				continue
			}
			settings = append(settings, Setting{m.key, text, v.at().line, v.at().column})
		}
	}
	return settings, nil
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

var (
	fileSchema         = sync.OnceValue(func() *jsonschema.Schema { return compile(FileSchema) })
	expectationsSchema = sync.OnceValue(func() *jsonschema.Schema { return compile(ExpectationsSchema) })
)

func compile(text string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", must(jsonschema.UnmarshalJSON(strings.NewReader(text)))); err != nil {
		panic(err)
	}
	return c.MustCompile("schema.json")
}

// place is a line and a column in a file, both counted from 1.
type place struct{ line, column int }

// String returns the place as LINE:COLUMN, the prefix of error messages.
func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

// value is a value in a YAML file. plain is what a JSON decoder would return for it, and node
// contains its position. A mapping's member also has its key.
type value struct {
	node  ast.Node
	plain any
	key   string
	keyAt place
}

func placeOf(node ast.Node) place {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return place{t.Position.Line, max(1, t.Position.Column)}
	}
	return place{1, 1}
}

func (v value) at() place { return placeOf(v.node) }

func (v value) text() string { return fmt.Sprint(v.plain) }

// target returns the value's YAML node, without an anchor such as &name in front of it.
func (v value) target() ast.Node {
	if anchor, ok := v.node.(*ast.AnchorNode); ok {
		return anchor.Value
	}
	return v.node
}

// values returns a list's elements, or only v if v is not a list. If the list comes from a YAML
// alias, its elements have the alias's position.
func (v value) values() []value {
	list, ok := v.plain.([]any)
	if !ok {
		return []value{v}
	}
	sequence, _ := v.target().(*ast.SequenceNode)
	all := make([]value, len(list))
	for i, plain := range list {
		all[i] = value{node: v.node, plain: plain}
		if sequence != nil {
			all[i].node = sequence.Values[i]
		}
	}
	return all
}

// members returns a mapping's members, in file order.
func (v value) members() []value {
	object, _ := v.plain.(map[string]any)
	var all []value
	for _, key := range slices.Sorted(maps.Keys(object)) {
		m := value{v.node, object[key], key, v.at()}
		if mapping, ok := v.target().(ast.MapNode); ok {
			for pair := mapping.MapRange(); pair.Next(); {
				if pair.Key().GetToken().Value == key {
					m.node, m.keyAt = pair.Value(), placeOf(pair.Key())
				}
			}
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b value) int {
		return cmp.Or(cmp.Compare(a.keyAt.line, b.keyAt.line), cmp.Compare(a.keyAt.column, b.keyAt.column))
	})
	return all
}

// find returns the value at a path of keys and indexes. If there is no such value, it returns the
// last existing value on the path.
func (v value) find(location []string) value {
	for _, word := range location {
		members := v.members()
		if i := slices.IndexFunc(members, func(m value) bool { return m.key == word }); i >= 0 {
			v = members[i]
		} else if i, err := strconv.Atoi(word); err == nil && i < len(v.values()) {
			v = v.values()[i]
		} else {
			return v
		}
	}
	return v
}

// parseYAML parses a YAML mapping and validates it against a schema. Each error begins with
// LINE:COLUMN.
func parseYAML(text []byte, schema *jsonschema.Schema) (root value, err error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return root, syntaxError(err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return root, errors.New("1:1: the file must be a single YAML document with lines of the form NAME: VALUE")
	}
	plain, err := yaml.YAMLToJSON(text)
	if err != nil {
		return root, syntaxError(err)
	}
	root.node = file.Docs[0].Body
	if root.plain, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain)); err != nil {
		return root, fmt.Errorf("1:1: the file contains a value that JSON cannot represent: %w", err)
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](schema.Validate(root.plain)); ok {
		return root, explain(root, schema, invalid)
	}
	return root, nil
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

// durations lists the keys whose values are durations.
var durations = []string{"lease", "compensation"}

var printer = message.NewPrinter(language.English)

// explain converts a validation error into a sentence with the error's position. For an unknown
// key, it suggests a similar one.
func explain(root value, schema *jsonschema.Schema, err *jsonschema.ValidationError) error {
	for len(err.Causes) > 0 {
		err = err.Causes[0]
	}
	where := root.find(err.InstanceLocation)
	name := cmp.Or(strings.Join(err.InstanceLocation, "."), "the file")
	switch k := err.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		key := slices.Min(k.Properties)
		known := slices.Sorted(maps.Keys(schema.Properties)) // only the top-level object limits its keys
		return fmt.Errorf("%v: there is no key %q%s", where.find([]string{key}).keyAt, key, catalog.Hint(key, known, "; there are "+strings.Join(known, ", ")))
	case *kind.Type:
		hint := ""
		switch {
		case k.Got == "object" && slices.Contains(k.Want, "string"):
			hint = ": put text that begins with a brace, or contains a colon and a space, in quotes"
		case k.Got == "number" && slices.Contains(durations, name):
			hint = ": write a duration with a unit, such as 30s"
		case name == "the file" && k.Got == "string":
			hint = ": " + notAPair
		}
		return fmt.Errorf("%v: %s is %s, and must be %s%s", where.at(), name, k.Got, strings.Join(k.Want, " or "), hint)
	default:
		return fmt.Errorf("%v: %s: %s", where.at(), name, err.ErrorKind.LocalizedString(printer))
	}
}
