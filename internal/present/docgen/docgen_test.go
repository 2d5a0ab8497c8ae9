package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// generated generates the documents. It does so only once for all tests, because that is slow.
var generated = sync.OnceValues(generate)

func TestDocumentsAreCurrent(t *testing.T) {
	texts, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 15 {
		t.Fatalf("generated %d documents, want at least 15", len(texts))
	}
	for path, want := range texts {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s is stale (%v): run make generate", path, err)
		}
	}
}

var slot = regexp.MustCompile(`\{[a-z][\w.-]*\}`)

func TestDocumentsHaveNoEmptySlots(t *testing.T) {
	texts, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range texts {
		if strings.Contains(path, "handout") || strings.Contains(path, "workshop") {
			if empty := slot.FindAllString(text, -1); empty != nil {
				t.Errorf("%s: slots without a value: %v", path, empty)
			}
		}
	}
}
