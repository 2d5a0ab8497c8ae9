// Docgen writes the generated documents, so that they match the code. It generates whole files, such
// as docs/strategies.md, and sections of other documents between the marks "generated" and "end". The
// content comes from the catalogs, the strategy list and the reference runs in results/.
//
// Run it with go generate or make generate. Its test fails if a document is out of date.
package main

//go:generate go run .

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// run updates all outdated documents and prints their paths.
func run() error {
	texts, err := generate()
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		file, text := filepath.Join(root, path), texts[path]
		if old, err := os.ReadFile(file); err == nil && string(old) == text {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// root is the relative path to the repository root, because go generate runs the program in this folder.
const root = "../../.."

var generatedBlock = regexp.MustCompile(`(?s)<!-- generated: (\S+) -->\n(.*?)<!-- end -->`)

// generate maps the path of every document that is generated, or has generated sections, to its text.
func generate() (map[string]string, error) {
	texts := map[string]string{}
	for path, render := range files {
		text, err := render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		texts[path] = text
	}
	return texts, fillBlocks(texts)
}

// fillBlocks adds the documents with generated sections to texts, which maps paths to contents.
func fillBlocks(texts map[string]string) error {
	docs, err := fs.Glob(os.DirFS(root), "docs/*.md")
	if err != nil {
		return err
	}
	unused := maps.Clone(blocks)
	for _, path := range append(docs, "README.md", "results/README.md") {
		if _, generated := texts[path]; generated {
			continue
		}
		text, err := read(path)
		if err != nil {
			return err
		}
		for _, block := range generatedBlock.FindAllStringSubmatch(text, -1) {
			name := block[1]
			render, ok := blocks[name]
			if !ok {
				return fmt.Errorf("%s: block %q has no generator: correct the block name", path, name)
			}
			content, err := render()
			if err != nil {
				return fmt.Errorf("%s: block %s: %w", path, name, err)
			}
			text = strings.Replace(text, block[0], fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->", name, content), 1)
			delete(unused, name)
		}
		texts[path] = text
	}
	for name := range unused {
		return fmt.Errorf("no document contains block %q: add it to one, or remove its generator", name)
	}
	return nil
}
