package main

import (
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestComposeFlags checks that the program accepts the command of the load in docker-compose.yml.
func TestComposeFlags(t *testing.T) {
	var file struct {
		Services map[string]struct{ Command []string }
	}
	text := regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAll(read(t, "../../docker-compose.yml"), []byte("$1"))
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	load := file.Services["load"].Command
	if len(load) < 3 || load[0] != "loadgen" || load[1] != "run" {
		t.Fatalf("command %q", load)
	}
	if _, err := parseRun(load[2:]); err != nil {
		t.Error(err)
	}
}
