package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/present/compare"
)

// ComparedText writes a comparison of two runs for a terminal.
func ComparedText(w io.Writer, c *compare.Comparison) error { return comparedDocument(c).text(w, 1) }

// ComparedMarkdown writes a comparison of two runs as a Markdown document.
func ComparedMarkdown(w io.Writer, c *compare.Comparison) error {
	return comparedDocument(c).markdown(w)
}

// ComparedJSON writes a comparison of two runs as JSON.
func ComparedJSON(w io.Writer, c *compare.Comparison) error { return encode(w, c) }

func comparedDocument(c *compare.Comparison) document {
	d := document{Title: "Comparison", Head: []string{"old: " + side(c.Old), "new: " + side(c.New)}}
	if len(c.Unlike) > 0 {
		d.Head = append(d.Head, "UNLIKE: the two runs were not measured alike, which may explain the differences: "+strings.Join(c.Unlike, "; "))
	}
	d.Head = append(d.Head, c.Summary(), catalog.Footnote)
	d.add(changes(c))
	d.add(section{Title: "Costs under no fault", Table: tableOf(comparedColumns, c.Costs)})
	d.explain()
	d.add(section{Lines: unknownCosts(c)})
	return d
}

func side(s compare.Side) string {
	text := fmt.Sprintf("%s, begun %s, commit %s", s.Path, s.StartedAt.Format("2006-01-02 15:04:05 MST"), s.Commit)
	if !s.Complete {
		text += ", INCOMPLETE"
	}
	return text
}

var changeColumns = []column[compare.Change]{
	text("cell", func(x compare.Change) string { return x.Cell }),
	text("old", func(x compare.Change) string { return x.Old }),
	text("new", func(x compare.Change) string { return x.New }),
	text("why", func(x compare.Change) string { return wrap(x.Why, maxPointsWidth) }),
}

// changes lists the changed verdicts, and the tests that only one run contains.
func changes(c *compare.Comparison) section {
	s := section{Table: tableOf(changeColumns, c.Changes)}
	if len(c.Changes) > 0 {
		s.Title = "Verdicts that changed"
	}
	s.Lines = applying([]remark{
		{len(c.OnlyOld) > 0, "in old alone: " + strings.Join(c.OnlyOld, ", ")},
		{len(c.OnlyNew) > 0, "in new alone: " + strings.Join(c.OnlyNew, ", ")},
	})
	return s
}

var comparedColumns = []column[compare.Cost]{
	text("strategy", func(x compare.Cost) string { return x.Strategy }),
	text("cost", func(x compare.Cost) string { return x.Figure }),
	number("", "old", func(x compare.Cost) string { return interval(x.Old) }),
	number("", "new", func(x compare.Cost) string { return interval(x.New) }),
	number("", "change", change),
	number("", "p", func(x compare.Cost) string { return optional(x.P, pValue) }),
	number("", "n", sizes),
	text("answer", func(x compare.Cost) string { return string(x.Answer) }),
}

// interval formats a median with its confidence interval, such as "7.31 [7.02, 7.90]". With too few
// measurements, it omits the interval.
func interval(m compare.Measured) string {
	switch {
	case m.Median == nil:
		return "?"
	case m.Low == nil || m.High == nil:
		return millis(*m.Median)
	default:
		return fmt.Sprintf("%s [%s, %s]", millis(*m.Median), millis(*m.Low), millis(*m.High))
	}
}

const noChange = "~"

// change returns by how many percent a cost has changed, or noChange if the statistical test found
// no difference.
func change(x compare.Cost) string {
	switch {
	case x.Answer != compare.Slower && x.Answer != compare.Faster:
		return noChange
	case x.Change == nil:
		return "?"
	default:
		return fmt.Sprintf("%+.1f %%", (*x.Change-1)*100)
	}
}

func pValue(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

func sizes(x compare.Cost) string {
	if x.Old.N+x.New.N == 0 {
		return "-"
	}
	if x.Old.N == x.New.N {
		return strconv.Itoa(x.Old.N)
	}
	return fmt.Sprintf("%d+%d", x.Old.N, x.New.N)
}

// unknownCosts says why some costs could not be compared.
func unknownCosts(c *compare.Comparison) (lines []string) {
	unknown := catalog.Filter(c.Costs, func(x compare.Cost) bool { return x.Answer == compare.NotKnown })
	for _, why := range catalog.Distinct(catalog.Map(unknown, func(x compare.Cost) string { return x.Why })) {
		n := len(catalog.Filter(unknown, func(x compare.Cost) bool { return x.Why == why }))
		lines = append(lines, fmt.Sprintf("for %s, it is not known whether there is a change: %s", catalog.Plural(n, "cost", "costs"), why))
	}
	return lines
}
