package target

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"

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

// ExpectationsSchema is the JSON Schema of a file with expectations.
//
//go:embed expectations.schema.json
var ExpectationsSchema string

// Setting is one flag of the run command and its value, as a line of a target file sets it.
type Setting struct {
	Key, Value   string
	Line, Column int
}

// ReadFile reads a target file in YAML or JSON. Its keys are the flags of the run command without
// the hyphen. A key with several values produces one setting for each value.
func ReadFile(path string) ([]Setting, error) {
	text, err := infile.Read(path, infile.Small)
	if err != nil {
		return nil, err
	}
	settings, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return settings, nil
}

// parseFile parses a target file. Its errors start with the line and the column.
func parseFile(text []byte) ([]Setting, error) {
	root, err := parseYAML(text, fileSchema())
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, key := range root.keys {
		m := root.members[key]
		for _, v := range m.values() {
			text := v.text()
			if slices.Contains(secrets, key) {
				if text, err = expand(text); err != nil {
					return nil, fmt.Errorf("%v: %s: %w", v.at, key, err)
				}
			}
			settings = append(settings, Setting{key, text, v.at.line, v.at.column})
		}
		if key == "targets" || key == "target-pid" { // these flags take a list, so join the values
			all := settings[len(settings)-len(m.values()):]
			for _, one := range all[1:] {
				all[0].Value += "," + one.Value
			}
			settings = settings[:len(settings)-len(all)+1]
		}
	}
	return settings, nil
}

// secrets lists the keys whose values may contain environment variables, as ${NAME}. Users
// can then share the file without its secrets.
var secrets = []string{"db", "header", "admin-token"}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

func expand(text string) (string, error) {
	var missing error
	text = variable.ReplaceAllStringFunc(text, func(ref string) string {
		name := variable.FindStringSubmatch(ref)[1]
		value, ok := os.LookupEnv(name)
		if !ok {
			missing = fmt.Errorf("the environment has no %s", name)
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
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	c := jsonschema.NewCompiler()
	if err == nil {
		err = c.AddResource("schema.json", doc)
	}
	if err != nil {
		panic(err)
	}
	return c.MustCompile("schema.json")
}

// place is a line and a column of a file, both counted from 1.
type place struct{ line, column int }

// String returns LINE:COLUMN, which is how error messages begin.
func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

// value is a YAML value together with its place in the file.
type value struct {
	at      place
	key     place             // of the key, in a mapping
	scalar  any               // a string, number, bool or nil
	list    []*value          // elements of a sequence
	members map[string]*value // members of a mapping
	keys    []string          // keys of members, in file order
}

// values returns the elements of a list, or the value itself if it is not a list.
func (v *value) values() []*value {
	if v.list != nil {
		return v.list
	}
	return []*value{v}
}

func (v *value) text() string {
	if v.scalar == nil {
		return ""
	}
	return fmt.Sprint(v.scalar)
}

// plain converts the value into maps, slices and scalars, so that the schema can validate it.
func (v *value) plain() any {
	switch {
	case v.members != nil:
		m := map[string]any{}
		for k, x := range v.members {
			m[k] = x.plain()
		}
		return m
	case v.list != nil:
		l := make([]any, len(v.list))
		for i, x := range v.list {
			l[i] = x.plain()
		}
		return l
	}
	return v.scalar
}

// find returns the value at a location that the schema package reports. If the file lacks a part of
// the location, find returns the last value before it.
func (v *value) find(location []string) *value {
	for _, word := range location {
		next := v.members[word]
		if i, err := strconv.Atoi(word); err == nil && i < len(v.list) {
			next = v.list[i]
		}
		if next == nil {
			return v
		}
		v = next
	}
	return v
}

// parseYAML parses a mapping and validates it with the schema. Its errors start with the
// line and the column.
func parseYAML(text []byte, schema *jsonschema.Schema) (*value, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, errors.New("1:1: want one YAML document, a mapping")
	}
	root, err := valueOf(file.Docs[0].Body, 0)
	if err != nil {
		return nil, err
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(root.plain()); errors.As(err, &invalid) {
		return nil, explain(root, schema, invalid)
	}
	return root, nil
}

var yamlPosition = regexp.MustCompile(`^\[(\d+:\d+)\] (.*)`)

// syntaxError shortens the parser's error to its place and its first line.
func syntaxError(err error) error {
	if m := yamlPosition.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: %s", m[1], m[2])
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("1:1: %s", first)
}

const deepest = 8 // largest depth of nesting that valueOf accepts

func valueOf(node ast.Node, depth int) (*value, error) {
	v := &value{at: place{1, 1}}
	if t := node.GetToken(); t != nil && t.Position != nil {
		v.at = place{t.Position.Line, max(1, t.Position.Column)}
	}
	if depth > deepest {
		return nil, fmt.Errorf("%v: nested too deeply", v.at)
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		v.members = map[string]*value{}
		for _, pair := range n.Values {
			if err := v.add(pair, depth); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		v.members = map[string]*value{}
		return v, v.add(n, depth)
	case *ast.SequenceNode:
		v.list = []*value{}
		for _, x := range n.Values {
			element, err := valueOf(x, depth+1)
			if err != nil {
				return nil, err
			}
			v.list = append(v.list, element)
		}
	case *ast.LiteralNode:
		v.scalar = n.Value.Value
	case *ast.StringNode:
		v.scalar = n.Value
	case *ast.NullNode:
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.scalar = node.(ast.ScalarNode).GetValue()
		if x, isFloat := v.scalar.(float64); isFloat && (math.IsInf(x, 0) || math.IsNaN(x)) { // JSON has no such numbers
			v.scalar = node.String()
		}
	default:
		return nil, fmt.Errorf("%v: neither anchors, aliases nor tags are read here", v.at)
	}
	return v, nil
}

func (v *value) add(pair *ast.MappingValueNode, depth int) error {
	key, err := valueOf(pair.Key, depth+1)
	if err != nil {
		return err
	}
	name := key.text()
	if v.members[name] != nil {
		return fmt.Errorf("%v: %s stands there twice", key.at, name)
	}
	member, err := valueOf(pair.Value, depth+1)
	if err != nil {
		return err
	}
	if member.at.line != key.at.line { // the text spans several lines, so report its key
		member.at = key.at
	}
	member.key = key.at
	v.members[name], v.keys = member, append(v.keys, name)
	return nil
}

var printer = message.NewPrinter(language.English)

// explain converts a validation error into a sentence that starts with the place. For an unknown
// key, it suggests a similar one.
func explain(root *value, schema *jsonschema.Schema, err *jsonschema.ValidationError) error {
	for len(err.Causes) > 0 {
		err = err.Causes[0]
	}
	where := root.find(err.InstanceLocation)
	name := strings.Join(err.InstanceLocation, ".")
	switch k := err.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		key := slices.Min(k.Properties)
		known := propertiesOf(schema, err.InstanceLocation)
		return fmt.Errorf("%v: there is no key %q%s", where.members[key].key, key, catalog.Hint(key, known, "; there are "+strings.Join(known, ", ")))
	case *kind.Type:
		hint := ""
		if k.Got == "object" && slices.Contains(k.Want, "string") {
			hint = ": put what begins with a brace in quotes"
		}
		return fmt.Errorf("%v: %s is %s, and must be %s%s", where.at, orTop(name), k.Got, strings.Join(k.Want, " or "), hint)
	case *kind.Enum:
		words := make([]string, len(k.Want))
		for i, w := range k.Want {
			words[i] = fmt.Sprint(w)
		}
		return fmt.Errorf("%v: %s is %v, and must be one of %s", where.at, orTop(name), k.Got, strings.Join(words, ", "))
	default:
		return fmt.Errorf("%v: %s: %s", where.at, orTop(name), err.ErrorKind.LocalizedString(printer))
	}
}

func orTop(name string) string {
	if name == "" {
		return "the file"
	}
	return name
}

// propertiesOf returns the names that the schema allows in the object at a location.
func propertiesOf(schema *jsonschema.Schema, location []string) []string {
	for _, word := range location {
		next := schema.Properties[word]
		if additional, ok := schema.AdditionalProperties.(*jsonschema.Schema); next == nil && ok {
			next = additional
		}
		if next == nil {
			return nil
		}
		schema = next
		for _, s := range slices.Concat(schema.OneOf, schema.AnyOf) {
			if s.Properties != nil {
				schema = s
			}
		}
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
