package lockbench

import _ "embed"

// ResultSchema is the JSON Schema (draft 2020-12) of bench.json. Its environment
// is that of run.json, by reference to run.schema.json beside it.
//
//go:embed bench.schema.json
var ResultSchema string
