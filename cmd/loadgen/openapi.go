package main

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"grablab/internal/testbed/infile"

	"github.com/goccy/go-yaml"
)

// node is a decoded JSON object in an OpenAPI document.
type node = map[string]any

// openAPI finds the calls that a service offers in its OpenAPI document.
type openAPI struct{ doc node }

var (
	grabWords   = regexp.MustCompile(`(?i)grab|claim|accept|take|reserve|buy|purchase|assign`)
	driverWords = regexp.MustCompile(`(?i)driver|rider|user|customer|buyer|client|account|worker`)
	countWords  = regexp.MustCompile(`(?i)count|number|amount|^n$|size|quantity`)
	parameter   = regexp.MustCompile(`\{[^}]*\}`)
)

// readOpenAPI suggests values for a target file. It takes them from the calls in an OpenAPI
// document that seem to grab or open orders.
func readOpenAPI(path string) (map[string]string, error) {
	text, err := infile.Read(path, infile.Small)
	if err != nil {
		return nil, err
	}
	var api openAPI
	if err := yaml.Unmarshal(text, &api.doc); err != nil {
		return nil, errors.New("this file is neither valid JSON nor valid YAML: name an OpenAPI document")
	}
	found := map[string]string{}
	paths := object(api.doc, "paths")
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range []string{"post", "put", "patch"} {
			op := object(paths, p, method)
			name, _ := op["operationId"].(string)
			if op == nil || found["path"] != "" || !grabWords.MatchString(p+" "+name) {
				continue
			}
			found["method"] = strings.ToUpper(method)
			found["path"] = parameter.ReplaceAllStringFunc(p, grabPlaceholder)
			found["body"] = api.body(op, grabPlaceholder)
		}
	}
	if found["path"] == "" {
		return nil, errors.New("no path or operationId in this document contains a word such as grab, claim or reserve: describe the call that grabs an order with -path and -body")
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		op := object(paths, p, "post")
		if op == nil || strings.Contains(p, "{") || !strings.HasPrefix(found["path"], p+"/") {
			continue
		}
		field := api.firstID(op)
		if field == "" {
			continue
		}
		body := api.body(op, func(field string) string {
			if countWords.MatchString(field) {
				return "{count}"
			}
			return "1"
		})
		found["open-orders"] = strings.Join(strings.Fields("POST "+p+" "+body+" -> ."+field), " ")
	}
	return found, nil
}

// grabPlaceholder returns {driver} if the name of a request field looks like a driver id, and
// {order} otherwise.
func grabPlaceholder(word string) string {
	if driverWords.MatchString(word) {
		return "{driver}"
	}
	return "{order}"
}

// object follows a path of field names into a JSON object. It returns the object at the end of the
// path, or nil if there is none.
func object(n node, names ...string) node {
	for _, name := range names {
		n, _ = n[name].(node)
	}
	return n
}

// schema returns the JSON schema of a request or a response. It follows references within the
// document.
func (api openAPI) schema(content node) node {
	s := object(content, "content", "application/json", "schema")
	for range 8 { // limit the number of steps, because references can form a cycle
		ref, ok := s["$ref"].(string)
		if !ok {
			break
		}
		s = object(api.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return s
}

// body returns a template for the body of a request. It contains the required fields, or all fields
// if none is required. The function value returns the placeholder for a field.
func (api openAPI) body(op node, value func(field string) string) string {
	s := api.schema(object(op, "requestBody"))
	properties := object(s, "properties")
	var fields []string
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if len(required) > 0 && !slices.Contains(required, any(name)) {
			continue
		}
		text := value(name)
		if object(properties, name)["type"] == "string" {
			text = `"` + text + `"`
		}
		fields = append(fields, `"`+name+`":`+text)
	}
	if fields == nil {
		return ""
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// firstID returns the name of the first field in a successful response that looks like an id, or
// "".
func (api openAPI) firstID(op node) string {
	responses := object(op, "responses")
	for _, status := range []string{"201", "200"} {
		properties := object(api.schema(object(responses, status)), "properties")
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if strings.HasSuffix(strings.ToLower(name), "id") {
				return name
			}
		}
	}
	return ""
}
