package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/present/report"
	"grablab/internal/service/instance"

	"github.com/goccy/go-yaml"
)

// manifest holds the fields of a Kubernetes object that the tests read.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Completions int
		Template    struct {
			Spec struct {
				Containers []struct {
					Command, Args []string
					Env           []struct{ Name, Value string }
				}
			}
		}
	}
}

// manifests returns the objects in deploy/kubernetes by kind and name, such as job/merge.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/kubernetes/*/*.yaml")
	if err != nil || len(paths) < 8 {
		t.Fatalf("Glob: %q, %v", paths, err)
	}
	all := map[string]manifest{}
	for _, path := range paths {
		for decode := yaml.NewDecoder(bytes.NewReader(read(t, path))); ; {
			var m manifest
			if err := decode.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("decode %s: %v", path, err)
			}
			all[strings.ToLower(m.Kind)+"/"+m.Metadata.Name] = m
		}
	}
	return all
}

// command returns the command line of the first container, with its variables replaced by values.
func (m manifest) command(values *strings.Replacer) (line []string) {
	c := m.Spec.Template.Spec.Containers[0]
	for _, word := range slices.Concat(c.Command, c.Args) {
		line = append(line, values.Replace(word))
	}
	return line
}

// shardValues holds the variables in the shards Job, each followed by its value.
var shardValues = []string{"$(START)", noon, "$(SEED)", "7", "$(FIRST_ORDER)", "1", "$(DB)", "grab:grab@tcp(mysql:3306)/grab", "$(ADMIN_TOKEN)", "x", "$(JOB_COMPLETION_INDEX)", "1"}

// TestManifestFlags checks that the programs accept the commands and environment variables in
// deploy/kubernetes.
func TestManifestFlags(t *testing.T) {
	all := manifests(t)
	shards := all["job/shards"]
	t.Setenv("JOB_COMPLETION_INDEX", "1")
	for _, env := range shards.Spec.Template.Spec.Containers[0].Env {
		if env.Value != "" {
			t.Setenv(env.Name, env.Value)
		}
	}
	s, err := parseRun(shards.command(strings.NewReplacer(shardValues...))[2:])
	if err != nil {
		t.Fatal(err)
	}
	if s.Shard == nil || s.Shard.Index != 1 || s.Shard.Count != shards.Spec.Completions {
		t.Errorf("shard %+v of %d", s.Shard, shards.Spec.Completions)
	}
	merge := all["job/merge"].command(strings.NewReplacer(`"`, ""))
	line, err := flags.Parse(defaults("").flagsOfMerge(), strings.Fields(merge[2])[3:])
	if err != nil || len(line.Args) != 1 {
		t.Errorf("Parse(%q): %v", merge, err)
	}
	instances := all["statefulset/grabsvc"]
	if _, err := instance.Parse(instances.command(strings.NewReplacer())[1:]); err != nil {
		t.Error(err)
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"instance", "-h"}, &help, &help); !errors.Is(err, exitDone) {
		t.Fatal(err)
	}
	for _, env := range instances.Spec.Template.Spec.Containers[0].Env {
		name := "-" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(env.Name, "GRABSVC_")), "_", "-") + " "
		if !strings.Contains(help.String(), name) {
			t.Errorf("%s: grabsvc has no flag %s", env.Name, name)
		}
	}
}

// TestKubernetes builds the manifests with kustomize, validates them against the API schemas, and
// runs the Jobs as processes.
func TestKubernetes(t *testing.T) {
	bin := os.Getenv("GRABLAB_KUBERNETES")
	if bin == "" {
		t.Skip("kustomize and kubectl-validate are not installed: use make kubernetes")
	}
	dir := t.TempDir()
	built := map[string]string{}
	for _, overlay := range []string{"base", "managed", "load"} {
		text, err := exec.Command(filepath.Join(bin, "kustomize"), "build", filepath.Join("../../deploy/kubernetes", overlay)).Output()
		if err != nil {
			t.Fatalf("kustomize build %s: %v", overlay, err)
		}
		built[overlay] = string(text)
	}
	for _, tc := range []struct {
		name, text string
		valid      bool
	}{
		{"base", built["base"], true},
		{"managed", built["managed"], true},
		{"load", built["load"], true},
		{"misspelt", strings.ReplaceAll(built["load"], "readinessProbe:", "readinesProbe:"), false},
		{"mistyped", strings.ReplaceAll(built["load"], "completions: 4", "completions: four"), false},
	} {
		path := filepath.Join(dir, tc.name+".yaml")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(bin, "kubectl-validate"), "--version", "1.30", path).CombinedOutput()
		if (err == nil) != tc.valid {
			t.Errorf("%s: valid is %v, want %v\n%s", tc.name, err == nil, tc.valid, out)
		}
		t.Logf("%s: %s", tc.name, regexp.MustCompile(`\x1b\[\d*m`).ReplaceAllString(strings.TrimSpace(string(out)), ""))
	}
	if strings.Contains(built["managed"], "mysql:8.4") || strings.Contains(built["managed"], "redis:7") {
		t.Error("the overlay managed still contains its own servers")
	}

	all := manifests(t)
	t.Chdir(dir)
	urls, db := instances(t, 100)
	hosts := strings.Split(urls, ",")
	values := []string{"http://grabsvc-0.grabsvc:8004", hosts[0], "http://grabsvc-1.grabsvc:8004", hosts[1], "=setnx", "=mysql-cas", "/results/", dir + "/", "$(DB)", db, `"$DB"`, db, `"$ADMIN_TOKEN"`, "x"}
	job := all["job/shards"]
	var processes []*exec.Cmd
	start := time.Now().Add(5 * time.Second).Format(time.RFC3339Nano)
	for i := range job.Spec.Completions {
		index := fmt.Sprint(i)
		cmd := loadgen(t, job.command(strings.NewReplacer(slices.Concat([]string{"$(START)", start, "$(JOB_COMPLETION_INDEX)", index}, values, shardValues)...))[1:]...)
		cmd.Env = append(cmd.Env, "JOB_COMPLETION_INDEX="+index, "GRABLAB_SHARDS="+fmt.Sprint(job.Spec.Completions))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		processes = append(processes, cmd)
	}
	for i, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("shard %d: %v", i, err)
		}
	}
	script := all["job/merge"].command(strings.NewReplacer(values...))[2]
	words, _ := filepath.Glob(filepath.Join(dir, "shard-*"))
	words = append(strings.Fields(script)[2:], words...)
	words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(w, "*") })
	var out bytes.Buffer
	code := exitOf(t.Context(), words, &out, &out)
	t.Log(out.String())
	merged, err := report.Load(filepath.Join(dir, "merged"))
	if err != nil {
		t.Fatal(err)
	}
	if c := merged.Cells[0]; code != 0 || c.Verdict != catalog.Safe || c.Requests != 2000 {
		t.Errorf("exit %d, %s, %d requests", code, c.Verdict, c.Requests)
	}
}
