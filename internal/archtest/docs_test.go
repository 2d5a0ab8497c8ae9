package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the paths of all documents, relative to the root.
func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) < 8 {
		t.Fatalf("Glob: %q, %v", docs, err)
	}
	for i := range docs {
		docs[i], _ = filepath.Rel(root, docs[i])
	}
	return append(docs, "README.md", "results/README.md")
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(readDocument(t, "README.md"), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want 150 at most: the rest belongs to docs/", n)
	}
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code     = regexp.MustCompile("`[^`\n]+`")
	link     = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)
	modeID   = regexp.MustCompile(`\bF\d+\b`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\w\- ]`)
	ourPaths = regexp.MustCompile(`\b(?:internal|cmd|docs|migrations|results)/[\w./*-]*\w`)
)

// TestDocsLink checks that every link in the documents has a target and that every file that they name
// exists. Each ID of a failure mode must be a link to its explanation.
func TestDocsLink(t *testing.T) {
	for _, path := range documents(t) {
		text := readDocument(t, path)
		for _, p := range ourPaths.FindAllString(text, -1) {
			found, _ := filepath.Glob(filepath.Join(root, p))
			made := strings.HasPrefix(p, "results/latest") || strings.HasPrefix(p, "results/explore") || strings.HasPrefix(p, "results/_workshop") || p == "results/workshop.json"
			if len(found) == 0 && !made {
				t.Errorf("%s: there is no %s", path, p)
			}
		}
		prose := code.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
		for _, l := range link.FindAllStringSubmatch(prose, -1) {
			if !strings.Contains(l[2], "://") {
				checkLink(t, path, l[2])
			}
			if modeID.FindString(l[1]) == l[1] && !strings.HasSuffix(l[2], "#"+strings.ToLower(l[1])) {
				t.Errorf("%s: [%s] leads to %s", path, l[1], l[2])
			}
		}
		rest := heading.ReplaceAllString(link.ReplaceAllString(prose, ""), "")
		if bare := modeID.FindAllString(rest, -1); len(bare) > 0 {
			t.Errorf("%s: %v must be links to failure-modes.md", path, bare)
		}
	}
}

func checkLink(t *testing.T, from, to string) {
	t.Helper()
	file, anchor, _ := strings.Cut(to, "#")
	path := from
	if file != "" {
		path = filepath.Join(filepath.Dir(from), file)
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		t.Errorf("%s: link to %s: %v", from, to, err)
	} else if anchor != "" && !slices.Contains(anchorsOf(t, path), anchor) {
		t.Errorf("%s: %s has no heading #%s", from, path, anchor)
	}
}

// anchors caches the result of anchorsOf for each document.
var anchors = map[string][]string{}

// anchorsOf returns the anchors that GitHub creates for the headings of a document.
func anchorsOf(t *testing.T, path string) []string {
	t.Helper()
	if anchors[path] == nil {
		for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(readDocument(t, path), ""), -1) {
			name := noAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
			anchors[path] = append(anchors[path], strings.ReplaceAll(name, " ", "-"))
		}
	}
	return anchors[path]
}

var (
	recipeTitle = regexp.MustCompile(`(?m)^### (.*)$`)
	testCommand = regexp.MustCompile(`go test \./(\S+) -run '?([\w|]+)`)
	sourcePath  = regexp.MustCompile("`((?:internal|cmd)/[^`]+)`")
)

// samples maps the title of each recipe to patterns. A file that someone changed to follow the recipe matches
// at least one of them. Patterns contain no operators except \b.
var samples = map[string][]string{
	"A strategy":         {`\bsetnxDriverID\b`, `"setnx-driverid"`},
	"A fault":            {`\bredisFull\b`, `\bRedisFull\b`},
	"A property":         {`\bOrderOfService\b`},
	"A checker of runs":  {`\banswersAgree\b`, `\bAnswersAgree\b`},
	"A bench case":       {`waves-apart`},
	"A flag of loadgen":  {`\bBudgetTotal\b`},
	"A backend":          {`\bEtcd\b`, `\bDialEtcd\b`},
	"An exercise":        {`\boneLineMore\b`},
	"A view of the page": {`choosePath`, `choose\.js`, `id: "choose"`, `id="choose"`, `#choose`},
}

// matchesSample reports whether a pattern matches the source. It first searches for the plain text, which is
// much faster than matching the pattern.
func matchesSample(patterns []string, source string) bool {
	plain := strings.NewReplacer(`\b`, "", `\`, "")
	return slices.ContainsFunc(patterns, func(p string) bool {
		return strings.Contains(source, plain.Replace(p)) && regexp.MustCompile(p).MatchString(source)
	})
}

// TestRecipesNameEveryFile checks that each recipe names all files with the code of its sample, or their
// folders, and only files that exist.
func TestRecipesNameEveryFile(t *testing.T) {
	sources := map[string]string{}
	for _, folder := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(file, "_test.go") || !slices.Contains([]string{".go", ".js", ".json", ".html"}, filepath.Ext(file)) {
				return err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(file)
			sources[filepath.ToSlash(name)] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for section := range strings.SplitSeq(readDocument(t, "docs/contributing.md"), "\n### ") {
		title, recipe, _ := strings.Cut(section, "\n")
		recipe, _, _ = strings.Cut(recipe, "\n## ")
		var named []string
		for _, m := range sourcePath.FindAllStringSubmatch(recipe, -1) {
			named = append(named, m[1])
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("docs/contributing.md, %s: %v", title, err)
			}
		}
		sample := samples[title]
		if sample == nil {
			continue
		}
		found := false
		for name, source := range sources {
			if !matchesSample(sample, source) {
				continue
			}
			found = true
			if !slices.Contains(named, name) && !slices.Contains(named, path.Dir(name)) {
				t.Errorf("docs/contributing.md, %s: %s is not named, but contains the sample %q", title, name, sample)
			}
		}
		if !found {
			t.Errorf("%s: no file contains the sample %q", title, sample)
		}
	}
}

// TestRecipes checks that each kind of change has a recipe, and that the tests in its commands exist.
// Otherwise, no one would notice, because "go test -run" passes if no test matches.
func TestRecipes(t *testing.T) {
	text := readDocument(t, "docs/contributing.md")
	var titles []string
	for _, m := range recipeTitle.FindAllStringSubmatch(text, -1) {
		titles = append(titles, m[1])
	}
	for _, want := range []string{
		"A strategy", "A fault", "A property", "A checker of runs", "A bench case",
		"A flag of loadgen", "A backend", "An exercise", "A view of the page",
	} {
		if !slices.Contains(titles, want) {
			t.Errorf("docs/contributing.md has no recipe %q", want)
		}
	}
	commands := testCommand.FindAllStringSubmatch(text, -1)
	if len(commands) < 5 {
		t.Errorf("docs/contributing.md has %d commands that run tests, want 5 at least", len(commands))
	}
	for _, m := range commands {
		files, err := filepath.Glob(filepath.Join(root, m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var source strings.Builder
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(b)
		}
		for name := range strings.SplitSeq(m[2], "|") {
			if !strings.Contains(source.String(), "func "+name) {
				t.Errorf("docs/contributing.md: %s has no test whose name starts with %s", m[1], name)
			}
		}
	}
}
