package report

import (
	"embed"
	"strings"
	"text/template"

	"grablab/internal/catalog"
)

//go:embed *.tmpl
var textFiles embed.FS

// textTemplates contains the templates of Markdown documents, of Mermaid diagrams and of the sentences in reports.
var textTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"escape": escape, "mermaid": mermaidText, "names": namesOrDash, "describe": describeMoment, "contradiction": contradiction,
	"plural": catalog.Plural, "join": strings.Join, "rate": rate, "orZero": orZero,
	"decidingPoints": decidingPoints, "letsTwoIn": letsTwoIn, "locks": locks, "differs": differs,
}).ParseFS(textFiles, "*.tmpl"))

// say returns the sentence with this name in sentences.tmpl, filled in from data.
func say(name string, data any) string {
	var b strings.Builder
	if err := textTemplates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // cannot happen, because the templates accept all data
	}
	return b.String()
}
