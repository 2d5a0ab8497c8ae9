package mutate

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mistake is one small change to one file.
type mistake struct {
	file     string // the path from the root of the module
	rule     string // the rule that makes the change
	from, to int    // the bytes of the file that are replaced
	text     string // what replaces them
}

// apply returns the text of the file with the mistake.
func (m mistake) apply(source []byte) []byte {
	return slices.Concat(source[:m.from], []byte(m.text), source[m.to:])
}

// line returns the number of the line that the mistake begins on, counted from 1.
func (m mistake) line(source []byte) int { return 1 + bytes.Count(source[:m.from], []byte("\n")) }

// describe returns the changed code before and after the mistake, each joined into one line.
func (m mistake) describe(source []byte) (before, after string) {
	begin := bytes.LastIndexByte(source[:m.from], '\n') + 1
	end := len(source)
	if i := bytes.IndexByte(source[m.to:], '\n'); i >= 0 {
		end = m.to + i
	}
	oneLine := func(b []byte) string { return strings.Join(strings.Fields(string(b)), " ") }
	return oneLine(source[begin:end]), oneLine(slices.Concat(source[begin:m.from], []byte(m.text), source[m.to:end]))
}

// These are the names of the rules, which the report shows for each mistake.
const (
	removeStatement = "remove statement"
	negateCondition = "negate condition"
	dropCondition   = "drop condition"
	dropHalf        = "drop half a condition"
	skipErrorPath   = "skip error path"
	moveBound       = "move bound"
	changeConstant  = "change constant"
	swapArguments   = "swap arguments"
	removeDefer     = "remove defer"
	reorderCalls    = "reorder calls"
	dropLuaLine     = "drop Lua line"
)

// finder finds the places in one Go or Lua file where the rules apply.
type finder struct {
	file   string
	source []byte
	tree   *ast.File // nil for Lua
	tokens *token.File
	found  []mistake
}

func newFinder(file string, source []byte) (*finder, error) {
	f := &finder{file: file, source: source}
	if filepath.Ext(file) == ".lua" {
		return f, nil
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.tree, f.tokens = tree, files.File(tree.FileStart)
	return f, nil
}

// mistakes returns the mistakes that the rules can make in the file, sorted by position.
func (f *finder) mistakes() []mistake {
	if f.tree == nil {
		return luaMistakes(f.file, f.source)
	}
	f.found = nil
	ast.Inspect(f.tree, f.visit)
	slices.SortStableFunc(f.found, func(a, b mistake) int { return cmp.Compare(a.from, b.from) })
	return f.found
}

func (f *finder) offset(p token.Pos) int { return f.tokens.Offset(p) }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) replace(rule string, n ast.Node, text string) {
	f.found = append(f.found, mistake{f.file, rule, f.offset(n.Pos()), f.offset(n.End()), text})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.VAR
	case *ast.ReturnStmt:
		return !returnsError(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.replace(negateCondition, n.Cond, "!("+f.text(n.Cond)+")")
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.CallExpr:
		if logs(n) {
			return false
		}
		f.arguments(n.Args)
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
			f.replace(changeConstant, n, strconv.Itoa(v+1))
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			f.replace(changeConstant, n, other)
		}
	}
	return true
}

func (f *finder) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.DeferStmt:
			f.replace(removeDefer, s, "")
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || !logs(call) {
				f.replace(removeStatement, s, "")
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
			f.replace(removeStatement, s, "")
		case *ast.AssignStmt:
			// The value is still computed, because its variables would be unused otherwise.
			text := strings.TrimSuffix(strings.Repeat("_, ", len(s.Lhs)), ", ") + " = "
			if s.Tok != token.DEFINE && len(s.Rhs) == 1 && text+f.text(s.Rhs[0]) != f.text(s) {
				f.replace(removeStatement, s, text+f.text(s.Rhs[0]))
			}
		}
		if i+1 < len(list) && calls(s) && calls(list[i+1]) {
			next := list[i+1]
			between := string(f.source[f.offset(s.End()):f.offset(next.Pos())])
			f.found = append(f.found, mistake{f.file, reorderCalls, f.offset(s.Pos()), f.offset(next.End()), f.text(next) + between + f.text(s)})
		}
	}
}

// returnsError reports whether a statement returns only err and constants, as in "return 0, err". Changing
// such a constant has no effect, because callers ignore it if there is an error.
func returnsError(s *ast.ReturnStmt) bool {
	if len(s.Results) < 2 {
		return false
	}
	for _, r := range s.Results[:len(s.Results)-1] {
		_, number := r.(*ast.BasicLit)
		name, ok := r.(*ast.Ident)
		if !number && (!ok || !slices.Contains([]string{"true", "false", "nil"}, name.Name)) {
			return false
		}
	}
	last, ok := s.Results[len(s.Results)-1].(*ast.Ident)
	return ok && last.Name == "err"
}

// logs reports whether a call only writes to a log, as in "log.Warn(…)".
func logs(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log"}, method.Sel.Name) {
		return false
	}
	of, ok := method.X.(*ast.SelectorExpr)
	return ok && strings.EqualFold(of.Sel.Name, "log")
}

// calls reports whether a statement is a call, or assigns the results of one.
func calls(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		_, ok := s.X.(*ast.CallExpr)
		return ok
	case *ast.AssignStmt:
		if len(s.Rhs) != 1 {
			return false
		}
		_, ok := s.Rhs[0].(*ast.CallExpr)
		return ok
	}
	return false
}

func (f *finder) condition(cond ast.Expr) {
	text := f.text(cond)
	if text == "err != nil" {
		f.replace(skipErrorPath, cond, "err != nil && false")
		return
	}
	f.replace(negateCondition, cond, "!("+text+")")
	f.replace(dropCondition, cond, "true || "+text)
	f.replace(dropCondition, cond, "false && ("+text+")")
}

func (f *finder) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND:
		f.replace(dropHalf, n.X, "(true || "+f.text(n.X)+")")
		f.replace(dropHalf, n.Y, "(true || "+f.text(n.Y)+")")
	case token.LOR:
		f.replace(dropHalf, n.X, "(false && ("+f.text(n.X)+"))")
		f.replace(dropHalf, n.Y, "(false && ("+f.text(n.Y)+"))")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]
		from := f.offset(n.OpPos)
		f.found = append(f.found, mistake{f.file, moveBound, from, from + len(n.Op.String()), other})
	}
}

// arguments swaps each pair of neighbouring arguments. If their types differ, the program does not
// compile, and the mistake does not count.
func (f *finder) arguments(args []ast.Expr) {
	for i := range len(args) - 1 {
		a, b := f.text(args[i]), f.text(args[i+1])
		if a == b {
			continue
		}
		f.found = append(f.found, mistake{f.file, swapArguments, f.offset(args[i].Pos()), f.offset(args[i+1].End()), b + ", " + a})
	}
}

// luaMistakes returns one mistake for each line of a script that is a whole statement. The mistake drops
// this line.
func luaMistakes(file string, source []byte) []mistake {
	var found []mistake
	at := 0
	for line := range bytes.Lines(source) {
		text := strings.TrimSpace(string(line))
		open := strings.Count(text, "(") != strings.Count(text, ")") || strings.Count(text, "{") != strings.Count(text, "}")
		block := text == "" || text == "else" || strings.HasPrefix(text, "--") || strings.HasPrefix(text, "end") || strings.HasPrefix(text, "#") ||
			strings.HasSuffix(text, " then") || strings.HasSuffix(text, " do") || strings.Contains(text, "function")
		if !open && !block {
			found = append(found, mistake{file, dropLuaLine, at, at + len(bytes.TrimRight(line, "\n")), ""})
		}
		at += len(line)
	}
	return found
}

// key returns the text that identifies a mistake in the list of equivalent mistakes. It contains no line
// number, so other changes to the file do not invalidate it.
func (m mistake) key(source []byte) string {
	before, after := m.describe(source)
	return fmt.Sprintf("%s: %s => %s", m.file, before, after)
}
