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
func ComparedText(w io.Writer, c *compare.Comparison) error { return comparedDocument(c).text(w, 1) }

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
		d.add(section{Title: "Costs under no fault", Table: tableOf(runCostColumns, c.Costs)})
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

var (
	medianColumns = []column[compare.Cost]{
		number("", "old", func(x compare.Cost) string { return interval(x.Old) }),
		number("", "new", func(x compare.Cost) string { return interval(x.New) }),
	}
	comparedColumns = []column[compare.Cost]{
		number("", "change", change),
		number("", "p", func(x compare.Cost) string { return optional(x.P, pValue) }),
		number("", "n", sizes),
		text("answer", func(x compare.Cost) string { return string(x.Answer) }),
	}
	runCostColumns = slices.Concat([]column[compare.Cost]{
		text("strategy", func(x compare.Cost) string { return x.Name }),
		text("cost", func(x compare.Cost) string { return x.Figure }),
	}, medianColumns, comparedColumns)
	benchCostColumns = slices.Concat([]column[compare.Cost]{
		text("lock", func(x compare.Cost) string { return x.Name }),
	}, medianColumns, []column[compare.Cost]{
		number("x floor", "old", func(x compare.Cost) string { return optional(x.OldRatio, ratio) }),
		number("x floor", "new", func(x compare.Cost) string { return optional(x.NewRatio, ratio) }),
	}, comparedColumns)
)

func benchCosts(c *compare.Comparison) []section {
	var sections []section
	for i, x := range c.Costs {
		isOfCase := func(y compare.Cost) bool { return y.Where == x.Where }
		if slices.IndexFunc(c.Costs, isOfCase) == i {
			sections = append(sections, section{Title: x.Where + ": " + x.Figure, Table: tableOf(benchCostColumns, catalog.Filter(c.Costs, isOfCase))})
		}
	}
	return sections
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
	var grouped groupedTexts
	for _, x := range c.Costs {
		if x.Answer == compare.NotKnown {
			grouped.add(strings.TrimSuffix(x.Name+" "+x.Where, " "), x.Why)
		}
	}
	for _, text := range grouped.order {
		names := slices.Compact(grouped.names[text])
		who := catalog.List(names)
		if len(names) > maxNames {
			who = strings.Join(names[:maxNames], ", ") + " and " + catalog.Plural(len(names)-maxNames, "other", "others")
		}
		lines = append(lines, "it is not known whether the cost of "+who+" has changed: "+text)
	}
	return lines
}

// maxNames limits the number of names on one line.
const maxNames = 6
