package lockbench

import _ "embed"

// ResultSchema is the JSON Schema (draft 2020-12) of bench.json.
//
//go:embed bench.schema.json
var ResultSchema string
