package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/present/compare"
)

// ComparedText writes a comparison of two results for a terminal.
func ComparedText(w io.Writer, c *compare.Comparison) error { return comparedDocument(c).text(w) }

// ComparedMarkdown writes a comparison of two results as a Markdown document.
func ComparedMarkdown(w io.Writer, c *compare.Comparison) error {
	return comparedDocument(c).markdown(w)
}

// ComparedJSON writes a comparison of two results as JSON.
func ComparedJSON(w io.Writer, c *compare.Comparison) error { return encode(w, c) }

func comparedDocument(c *compare.Comparison) document {
	d := document{Title: "Comparison", Head: []string{"old: " + side(c.Old), "new: " + side(c.New)}}
	if len(c.Unlike) > 0 {
		d.Head = append(d.Head, "UNLIKE: the two results were not measured alike, which may explain the differences: "+strings.Join(c.Unlike, "; "))
	}
	d.Head = append(d.Head, c.Summary(), catalog.Footnote)
	d.add(changes(c))
	if c.Kind == "bench" {
		d.add(benchCosts(c)...)
	} else {
		d.add(section{Title: "Costs under no fault", Table: costs(c.Costs, runCostColumns)})
	}
	d.add(section{Lines: comparedLegend(c)})
	return d
}

func side(s compare.Side) string {
	text := fmt.Sprintf("%s, begun %s, commit %s", s.Path, s.StartedAt.Format("2006-01-02 15:04:05 MST"), s.Commit)
	if !s.Complete {
		text += ", INCOMPLETE"
	}
	return text
}

// changes lists the verdicts that have changed, and the results that only one of the two runs has.
func changes(c *compare.Comparison) section {
	s := section{Title: "Verdicts that changed", Table: table{Headings: []heading{
		{Name: "cell", Left: true}, {Name: "old", Left: true}, {Name: "new", Left: true}, {Name: "why", Left: true},
	}}}
	for _, x := range c.Changes {
		s.Table.Rows = append(s.Table.Rows, []field{{Text: x.Cell}, {Text: x.Old}, {Text: x.New}, {Text: wrap(x.Why, maxPointsWidth)}})
	}
	if len(c.Changes) == 0 {
		s.Title = ""
	}
	for _, only := range []struct {
		in    string
		names []string
	}{{"old", c.OnlyOld}, {"new", c.OnlyNew}} {
		if len(only.names) > 0 {
			s.Lines = append(s.Lines, fmt.Sprintf("in %s alone: %s", only.in, strings.Join(only.names, ", ")))
		}
	}
	return s
}

type costColumn struct {
	heading
	value func(compare.Cost) string
}

var (
	comparedColumns = []costColumn{
		{heading{Name: "change"}, change},
		{heading{Name: "p"}, func(x compare.Cost) string { return optional(x.P, pValue) }},
		{heading{Name: "n"}, sizes},
		{heading{Name: "answer", Left: true}, func(x compare.Cost) string { return string(x.Answer) }},
	}
	runCostColumns = append([]costColumn{
		{heading{Name: "strategy", Left: true}, func(x compare.Cost) string { return x.Name }},
		{heading{Name: "cost", Left: true}, func(x compare.Cost) string { return x.Figure }},
		{heading{Name: "old"}, func(x compare.Cost) string { return interval(x.Old) }},
		{heading{Name: "new"}, func(x compare.Cost) string { return interval(x.New) }},
	}, comparedColumns...)
	benchCostColumns = append([]costColumn{
		{heading{Name: "lock", Left: true}, func(x compare.Cost) string { return x.Name }},
		{heading{Name: "old"}, func(x compare.Cost) string { return interval(x.Old) }},
		{heading{Name: "new"}, func(x compare.Cost) string { return interval(x.New) }},
		{heading{Group: "x floor", Name: "old"}, func(x compare.Cost) string { return optional(x.OldRatio, ratio) }},
		{heading{Group: "x floor", Name: "new"}, func(x compare.Cost) string { return optional(x.NewRatio, ratio) }},
	}, comparedColumns...)
)

// benchCosts returns a table of costs for each benchmark case.
func benchCosts(c *compare.Comparison) []section {
	var sections []section
	for left := c.Costs; len(left) > 0; {
		end := slices.IndexFunc(left, func(x compare.Cost) bool { return x.Where != left[0].Where })
		if end < 0 {
			end = len(left)
		}
		sections = append(sections, section{Title: left[0].Where + ": " + left[0].Figure, Table: costs(left[:end], benchCostColumns)})
		left = left[end:]
	}
	return sections
}

func costs(of []compare.Cost, columns []costColumn) table {
	var t table
	for _, c := range columns {
		t.Headings = append(t.Headings, c.heading)
	}
	for _, x := range of {
		row := make([]field, len(columns))
		for i, c := range columns {
			row[i].Text = c.value(x)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// interval formats a median with its confidence interval, such as "7.31 [7.02, 7.90]". With too few
// measurements, it formats only the median.
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

// change returns the change of a cost in percent. It returns noChange if the statistical test found
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

// comparedLegend explains the statistics, and why some costs could not be compared.
func comparedLegend(c *compare.Comparison) []string {
	if len(c.Costs) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("the figures are medians with 95 %% intervals, as in benchstat; p: the result of the Mann-Whitney U-test; slower, faster: the cost changed by at least 1 %% (all %s together have a confidence of %g %%, with the Holm correction); none shown: the measurements show no difference, but there may be one; %s the change cannot be given",
		catalog.Plural(len(c.Costs), "cost", "costs"), 100-c.Alpha*100, noChange)}
	if c.Kind == "bench" {
		lines = append(lines, "locks are compared by their ratio to the floor in the same round; the floor itself is compared by its time, so it shows changes of the machine")
	}
	var said sayings
	for _, x := range c.Costs {
		if x.Answer == compare.NotKnown {
			said.add(strings.TrimSuffix(x.Name+" "+x.Where, " "), x.Why)
		}
	}
	for _, text := range said.order {
		names := slices.Compact(said.names[text])
		who := catalog.List(names)
		if len(names) > maxNames {
			who = fmt.Sprintf("%s and %d others", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
		}
		lines = append(lines, "it is not known whether the cost of "+who+" has changed: "+text)
	}
	return lines
}

// maxNames limits how many names one line lists.
const maxNames = 6
