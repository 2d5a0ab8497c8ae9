package mutate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

const (
	// mistakeEnv is an environment variable with the number of the mistake that a program makes. If it is
	// not set, the program makes no mistake.
	mistakeEnv = "GRABLAB_MISTAKE"
	// reachedEnv is an environment variable that names a folder. The program creates a file in it for each
	// mistake whose statement it executes.
	reachedEnv = "GRABLAB_MISTAKES_REACHED"
)

// selector is added to each package with mistakes. It reads the two variables.
const selector = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	mistakeMade, _ = strconv.Atoi(os.Getenv("` + mistakeEnv + `"))
	mistakeFolder  = os.Getenv("` + reachedEnv + `")
	mistakesSeen   sync.Map
)

func reachMistake(number int) {
	if mistakeFolder == "" {
		return
	}
	if _, seen := mistakesSeen.LoadOrStore(number, true); !seen {
		os.WriteFile(mistakeFolder+"/"+strconv.Itoa(number), nil, 0o600)
	}
}
`

// place is the part of a function that a mistake changes.
type place struct {
	results   *ast.FieldList
	body      *ast.BlockStmt // body of the outermost function around the mistake
	statement ast.Stmt       // the innermost statement in a block that contains the mistake
}

// find returns the place of the mistake. The place has no body if the mistake is outside every function.
func (f *finder) find(m mistake) (p place) {
	within := func(from, to token.Pos) bool { return f.offset(from) <= m.from && m.to <= f.offset(to) }
	function := func(t *ast.FuncType, body *ast.BlockStmt) {
		if p.body == nil && body != nil && within(body.Pos(), body.End()) {
			p.results, p.body = t.Results, body
		}
	}
	block := func(list []ast.Stmt) {
		for _, s := range list {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause: // no statement can stand before them
				return
			}
			if p.body != nil && f.offset(s.Pos()) <= m.from && m.from < f.offset(s.End()) {
				p.statement = s
			}
		}
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n == nil || !within(n.Pos(), n.End()) {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			function(n.Type, n.Body)
		case *ast.FuncLit:
			function(n.Type, n.Body)
		case *ast.BlockStmt:
			block(n.List)
		case *ast.CaseClause:
			block(n.Body)
		case *ast.CommClause:
			block(n.Body)
		}
		return true
	})
	return p
}

// join returns the text of the file with all the given mistakes, by number. Each function begins with a switch that
// selects a copy of its body with one mistake. The original body notes which mistakes it reaches.
// Line directives let the compiler name the mistake that an error is in.
func (f *finder) join(mistakes map[int]mistake) []byte {
	inserted := map[int]string{}
	var bodies []*ast.BlockStmt
	for _, number := range slices.Sorted(maps.Keys(mistakes)) {
		m := mistakes[number]
		p := f.find(m)
		begin := f.offset(p.body.Lbrace) + 1
		if !slices.Contains(bodies, p.body) {
			bodies = append(bodies, p.body)
			inserted[begin] = "\nswitch mistakeMade {\n"
		}
		changed := m.apply(f.source)
		body := changed[begin-1 : f.offset(p.body.End())+len(changed)-len(f.source)]
		results, call, end := "", "", "return\n"
		if p.results != nil {
			results, call, end = f.text(p.results), "return ", ""
		}
		inserted[begin] += fmt.Sprintf("case %d:\n//line mistake%d.go:1\n%sfunc() %s %s()\n%s", number, number, call, results, body, end)
		inserted[f.offset(p.statement.Pos())] += fmt.Sprintf("reachMistake(%d); ", number)
	}
	for _, body := range bodies {
		inserted[f.offset(body.Lbrace)+1] += fmt.Sprintf("}\n//line %s:%d\n", filepath.Base(f.file), f.tokens.Line(body.Lbrace))
	}
	var joined []byte
	from := 0
	for _, at := range slices.Sorted(maps.Keys(inserted)) {
		joined = append(append(joined, f.source[from:at]...), inserted[at]...)
		from = at
	}
	return append(joined, f.source[from:]...)
}

// overlay tells the compiler which files to replace.
type overlay map[string]string

// write writes the overlay to a file.
func (o overlay) write(file string) error {
	text, err := json.Marshal(map[string]any{"Replace": o})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// replace makes the overlay replace a file of the project with the text.
func (b *bench) replace(o overlay, file string, text []byte) error {
	changed, err := os.CreateTemp(b.dir, "*"+filepath.Ext(file))
	if err != nil {
		return err
	}
	defer changed.Close()
	o[filepath.Join(b.root, file)] = changed.Name()
	_, err = changed.Write(text)
	return err
}

// join puts all the mistakes, by number, into one program. It writes the overlay of this program, and returns
// the packages that contain mistakes.
func (b *bench) join(mistakes map[int]mistake) (packages []string, err error) {
	b.joined = overlay{}
	files := map[string]map[int]mistake{}
	for number, m := range mistakes {
		if files[m.file] == nil {
			files[m.file] = map[int]mistake{}
		}
		files[m.file][number] = m
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		f := b.files[file]
		if err := b.replace(b.joined, file, f.join(files[file])); err != nil {
			return nil, err
		}
		folder := filepath.ToSlash(filepath.Dir(file))
		if pkg := importPath(folder); !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
			if err := b.replace(b.joined, folder+"/mistakes_selector.go", fmt.Appendf(nil, selector, f.tree.Name.Name)); err != nil {
				return nil, err
			}
		}
	}
	return packages, b.joined.write(b.overlay)
}

func importPath(folder string) string { return "grablab/" + folder }

// inMistake matches the position of an error of the compiler or of go vet.
var inMistake = regexp.MustCompile(`\bmistake(\d+)\.go:\d+`)

// dropInvalid joins the mistakes, and deletes those that do not compile or that go vet rejects.
func (b *bench) dropInvalid(ctx context.Context, mistakes map[int]mistake) error {
	for _, check := range [][]string{{"build", "-gcflags=-e", "-o=" + os.DevNull}, {"vet"}} {
		for {
			packages, err := b.join(mistakes)
			if err != nil || len(packages) == 0 {
				return err
			}
			out, err := b.command(ctx, "go", slices.Concat(check, []string{"-overlay=" + b.overlay}, packages)...).CombinedOutput()
			if err == nil {
				break
			}
			rejected := inMistake.FindAllSubmatch(out, -1)
			if len(rejected) == 0 || ctx.Err() != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("go %s: %w: %s", check[0], err, out))
			}
			for _, r := range rejected {
				number, _ := strconv.Atoi(string(r[1]))
				delete(mistakes, number)
			}
		}
	}
	return nil
}

// reached returns the numbers of the mistakes that a program has noted in the folder.
func reached(folder string) (map[int]bool, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	numbers := map[int]bool{}
	for _, file := range files {
		number, err := strconv.Atoi(file.Name())
		if err != nil {
			return nil, err
		}
		numbers[number] = true
	}
	return numbers, nil
}
