package experiment

import _ "embed"

// RunSchema is the JSON Schema (draft 2020-12) of run.json.
//
//go:embed run.schema.json
var RunSchema string
