package catalog

import _ "embed"

// Footnote tells the reader of a table how to look up a word in it.
const Footnote = "loadgen explain WORD explains every word and mark of these tables, and also whole entries, as in loadgen explain 'unsafe 3/11·2'"

// Columns contains an explanation of each column heading in the tables. Terms that need more
// explanation are in [Words].
var Columns = parseColumns()

//go:embed columns.json
var columnsJSON string

func parseColumns() (all []Word) {
	for _, section := range Parse[[]struct {
		About string
		Words []Word
	}](columnsJSON) {
		all = append(all, section.Words...)
	}
	return all
}
