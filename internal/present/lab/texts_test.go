package lab_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/present/lab"
	"grablab/internal/present/whichlock"
)

// shownIn lists the functions whose texts the page can show. A file without names stands for all its
// functions.
var shownIn = []string{
	"lab.go", "run.go", "sentences.go", "workshop.go: session atOnce inTurn", "server.go: withToken startHandler explore drawing handler",
	"watch.go: lookAtLedger", "choose.go: choose", "../whichlock/advise.go: Unmet",
	"../diagram/run.go", "../diagram/schedule.go", "../report/explore_failure.go: remedy contradiction",
	"../report/explore_page.go: answer headline", "../report/explore.go: searched", "../../explore/search/search.go: TimeOver", "../../explore/sim/property.go: judgeClaim judgeGrant judgeEvent judgeRefusal judgeFailedAcquire judgeWrite judgeRelease judgeAnswer judgeReason judgeStored",
	"../../explore/sim/property_wait.go: judgeOrder judgeWait", "../../explore/sim/property_end.go: judgeResidue judgeBusy judgeReleases judgeRemains judgeListeners",
	"../../check/timeline.go: describe",
}

// notShown matches texts in these functions that the page does not show in this form. They are error
// messages of the loadgen command, names in the API, and parts of sentences that are translated as a
// whole.
var notShown = regexp.MustCompile(`loopback|^lab: |^(and|of 3|and to|the order was)$|^an order of 3 units|^the order was given$|^(acquire|claim|grab|lost|read|release|strike|error|timeout) \w+$|^(bad request|the lab is busy)$|^setnx setnx( in 3 steps)?$|^its (read|write)$|` +
	`^the result of its|^setnx (is refused|fails)|^is inside, without|^(could not|kept|left|let|sold)|loadgen run|^and (by|setnx)$|[a-z.]setnx$|^3 3 at|from 12 ms 3|^setnx: setnx$|^setnx (in 3 steps|ms)$|^takes its process down$|^is dead, and|^redlock, for which|^again for|^3 grabs its read|^its read |^driver setnx$|^event|^(grabbed|sold) (more|out)|^for setnx|^with token`)

// sample evaluates an expression with an example for each unknown value. ok reports whether the expression
// contains a text.
func sample(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == gotoken.STRING && err == nil
	case *ast.BinaryExpr:
		if e.Op == gotoken.ADD {
			a, okA := sample(e.X)
			b, okB := sample(e.Y)
			return a + b, okA || okB
		}
	case *ast.Ident:
		if known := map[string]string{"errBad": "bad request", "errBusy": "the lab is busy", "errMissing": "not found", "what": "its read"}[e.Name]; known != "" {
			return known, false
		}
	case *ast.CallExpr:
		var texts []string
		first := -1
		for i, a := range e.Args {
			text, ok := sample(a)
			texts = append(texts, text)
			if ok && first < 0 {
				first = i
			}
		}
		name := fmt.Sprint(e.Fun)
		if s, ok := e.Fun.(*ast.SelectorExpr); ok {
			name = s.Sel.Name
		}
		switch {
		case name == "forMS":
			return "12 ms", false
		case name == "Plural" && len(texts) == 3:
			return "3 " + texts[2], true
		case name == "share" && len(texts) == 4:
			return "2 of 5 orders " + texts[3], true
		case name == "Itoa" || name == "FormatInt":
			return "3", false
		case name == "Join":
			return "setnx", false
		case name == "tooFew":
			return "no contender", false
		case name == "Or" && first >= 0:
			return texts[len(texts)-1], true
		case first >= 0 && strings.Contains(texts[first], "%"):
			return filled(texts[first], texts[first+1:]), true
		case first >= 0:
			return texts[first], true
		}
		return "", false
	}
	return "setnx", false
}

var verb = regexp.MustCompile(`%[-+#.\d]*[a-z%]`)

// filled returns a format with its verbs replaced by the examples.
func filled(format string, examples []string) string {
	n := -1
	return verb.ReplaceAllStringFunc(format, func(v string) string {
		switch n++; {
		case v == "%%":
			n--
			return "%"
		case v == "%d":
			return "3"
		case strings.HasSuffix(v, "f"):
			return "1.5"
		case n < len(examples) && examples[n] != "":
			return examples[n]
		default:
			return "setnx"
		}
	})
}

// said calls the function say for each text in the functions of shownIn, with the place of the text.
func said(t *testing.T, say func(text, where string)) {
	for _, entry := range shownIn {
		path, names, some := strings.Cut(entry, ": ")
		only := strings.Fields(names)
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name := ""
			switch d := d.(type) {
			case *ast.FuncDecl:
				name = d.Name.Name
			case *ast.GenDecl:
				if v, ok := d.Specs[0].(*ast.ValueSpec); ok && len(v.Values) > 0 {
					name = v.Names[0].Name
				}
			}
			found := slices.Index(only, name)
			if name == "" || some && found < 0 {
				continue
			}
			if some {
				only = slices.Delete(only, found, found+1)
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if e, is := n.(ast.Expr); is {
					if text, ok := sample(e); ok {
						say(text, path+" "+name)
						return false
					}
				}
				_, isField := n.(*ast.Field)
				return !isField
			})
		}
		if len(only) > 0 {
			t.Errorf("%s has no %v", path, only)
		}
	}
}

// scripts returns the source of all files of the page, and the texts in each file.
func scripts(t *testing.T) (all string, texts map[string]string) {
	texts = map[string]string{}
	literal := regexp.MustCompile("\"((?:[^\"\\\\]|\\\\.)+)\"|`([^`]+)`|>([^<>{}]+)<")
	slot, ms := regexp.MustCompile(`\$\{[^}]*\}`), regexp.MustCompile(`\$\{(ms|when)\([^}]*\}`)
	files, err := filepath.Glob("*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "index.html", "../diagram/diagram.js") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all += string(b)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") || path == "translate.js" || path == "workshop.js" {
				continue
			}
			line, _, _ = strings.Cut(line, " // ")
			for _, m := range literal.FindAllStringSubmatch(line, -1) {
				if m[3] != "" && !strings.HasSuffix(path, ".html") {
					continue
				}
				texts[path] += slot.ReplaceAllString(ms.ReplaceAllString(m[1]+m[2]+m[3], "12 ms"), "3") + "\n"
			}
		}
	}
	return all, texts
}

// notText matches literals in scripts that the page does not show as text.
var notText = regexp.MustCompile(`^input, select|[#=<>(){}\[\]*^$]|^\w+ (\w+)$|^M|^l-|api/|default-src|application/|\.\w+ |light dark|^(one|two) |sent$|^a, |^curve|^edge|^button, |^th, |^inst\.|minmax|fill|stroke|width=|charset|Intl|^td |^tr |^figure|^code, `)

// TestEverySentenceIsTranslated checks that every sentence that the page can show has a translation in each
// language. The sentences come from the catalogues, from the functions in shownIn, and from the page's scripts.
func TestEverySentenceIsTranslated(t *testing.T) {
	sentence := regexp.MustCompile(`[A-Za-z][a-z]+[,:]? [a-z]+`)
	classes := []string{"new", "cell", "open", "kept", "redis", "p", "sent", "<", "✓", "✗", "?", "-", "·", "▶", "done", "schedules", "change", "gap", "why", "actors", "not known", "lock", "answer", "commands"} // not words of the page
	where := map[string]string{}
	add := func(text, from string) {
		if strings.HasSuffix(text, " ") { // the program appends a value to this text
			text += "setnx"
		}
		text = strings.Trim(text, " ,;:.")
		if where[text] == "" && sentence.MatchString(text) && !notShown.MatchString(text) {
			where[text] = from
		}
	}
	all, texts := scripts(t)
	for path, lines := range texts {
		for text := range strings.Lines(lines) {
			if text = strings.TrimSpace(text); !notText.MatchString(text) {
				add(text, path)
			}
		}
	}
	for _, m := range catalog.Modes {
		for _, text := range []string{m.Name, m.Steps, m.Cure} {
			add(text, "the failure mode "+m.ID)
		}
	}
	for _, f := range slices.Concat(catalog.RunFaults, catalog.FaultsBy(catalog.Explore)) {
		add(f.About(), "the fault "+string(f))
	}
	for _, p := range catalog.Properties {
		add(p.About, "the property "+p.Name)
	}
	for word, meaning := range catalog.Meanings() {
		if !slices.Contains(classes, word) && (strings.Contains(all, `"`+word+`"`) || strings.Contains(all, ">"+word)) {
			add(meaning, "the word "+word)
		}
	}
	for _, s := range lock.Strategies {
		add(s.Title, "the strategy "+s.Name)
	}
	for _, q := range whichlock.Questions {
		add(q.Asks, "a question")
		for _, a := range q.Answers {
			add(a.Text, "an answer")
		}
	}
	for _, s := range whichlock.Guide.Stacks {
		for _, text := range s.Locks {
			add(text, "guide.json")
		}
	}
	for _, d := range whichlock.Guide.Duties {
		add(d.Do, "guide.json")
	}
	said(t, add)
	if len(where) < 440 {
		t.Fatalf("only %d sentences were found", len(where))
	}
	sentences, err := json.Marshal(slices.Collect(func(yield func(string) bool) {
		for text := range where {
			yield(text)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	p := newBrowser(t).Open(t, start(t, lab.Config{}), Look{})
	for _, text := range eval[[]string](p, fmt.Sprintf(`import("./translate.js").then(({ translate }) => %s.filter((text) => ["zh", "ja"].some((lang) => {
		const to = translate(text, lang);
		return to === undefined || !/[\u3040-\u9fff]/.test(to) || /[a-z]{3,} [a-z]{2,} [a-z]{3,}/.test(to);
	})).sort())`, sentences)) {
		t.Errorf("%s: texts.json does not translate %q", where[text], text)
	}
}
