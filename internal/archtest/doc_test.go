package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestDocumented checks that every package has a package comment and every exported identifier a doc
// comment.
func TestDocumented(t *testing.T) {
	documented := map[string]bool{} // whether the package in each folder has a comment
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".") && path != root) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil
		for _, bare := range undocumented(file) {
			t.Errorf("%s: this exported identifier has no doc comment", fset.Position(bare))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil || len(documented) < 10 {
		t.Fatalf("found only %d packages, or no go.mod: %v", len(documented), err)
	}
}

// undocumented returns the exported declarations of a file that have no comment. Methods of an unexported
// type and members of a documented group need none.
func undocumented(file *ast.File) []token.Pos {
	var bare []token.Pos
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || receiver(d).IsExported()) {
				bare = append(bare, d.Pos())
			}
		case *ast.GenDecl:
			if d.Doc != nil || d.Tok == token.IMPORT {
				continue
			}
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Doc == nil && s.Comment == nil && s.Name.IsExported() {
						bare = append(bare, s.Pos())
					}
				case *ast.ValueSpec:
					if s.Doc == nil && s.Comment == nil && s.Names[0].IsExported() {
						bare = append(bare, s.Pos())
					}
				}
			}
		}
	}
	return bare
}

func receiver(d *ast.FuncDecl) *ast.Ident {
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e
		default:
			return ast.NewIdent("_")
		}
	}
}
