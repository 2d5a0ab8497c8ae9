package catalog

import _ "embed"

// Footnote tells a table's reader how to look up a word.
const Footnote = "loadgen explain WORD explains every word and mark of these tables, and also whole entries, as in loadgen explain 'unsafe 3/11·2'"

// Columns explains the column headings and marks in the tables. For terms that need more explanation,
// see [Words].
var Columns = Parse[[]Word](columnsJSON)

//go:embed columns.json
var columnsJSON string
