package archtest

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"grablab/internal/service/instance"

	"github.com/goccy/go-yaml"
)

// composeFile holds the keys that our docker-compose.yml uses. Reading it rejects all other keys, because
// Docker could ignore a misspelt one.
type composeFile struct {
	Name     string
	Redis    any                `yaml:"x-redis"`
	Cluster  any                `yaml:"x-cluster"`
	Instance any                `yaml:"x-instance"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Profiles    []string
	Restart     string
	Volumes     []string
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		Retries           int
	}
	DependsOn map[string]struct {
		Condition string
	} `yaml:"depends_on"`
	StopGracePeriod string `yaml:"stop_grace_period"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	return c
}

func TestComposeIsComplete(t *testing.T) {
	c := readCompose(t)
	published := map[string]string{
		"mysql": "3306", "redis": "6379", "grabsvc-8004": "8004", "grabsvc-8005": "8005",
		"redlock-1": "7001", "redlock-2": "7002", "redlock-3": "7003", "redlock-4": "7004", "redlock-5": "7005",
	}
	inProfile := map[string]string{
		"zookeeper": "consensus", "etcd": "consensus", "prometheus": "observe", "grafana": "observe",
		"cluster": "cluster", "cluster-1": "cluster", "cluster-2": "cluster", "cluster-3": "cluster", "cluster-4": "cluster", "cluster-5": "cluster", "cluster-6": "cluster",
	}
	maps.Copy(published, map[string]string{"zookeeper": "2181", "etcd": "2379", "prometheus": "9090", "grafana": "3000"})
	for name := range inProfile {
		published[name] += "" // Cluster nodes publish no port, because they redirect clients to addresses in Docker's network
	}
	if len(c.Services) != len(published)+1 {
		t.Errorf("%d services, want %d and load", len(c.Services), len(published))
	}
	for name, port := range published {
		s, ok := c.Services[name]
		if !ok {
			t.Errorf("no service %s", name)
			continue
		}
		if port == "" && s.Ports != nil || port != "" && (len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:"+port+":")) {
			t.Errorf("%s: ports %v, want %s on loopback", name, s.Ports, port)
		}
		if h := s.Healthcheck; len(h.Test) < 2 || h.Interval == "" || h.Timeout == "" || h.Retries == 0 {
			t.Errorf("%s: health check %+v", name, h)
		}
		if profile, ok := inProfile[name]; ok != slices.Equal(s.Profiles, []string{profile}) || !ok && s.Profiles != nil {
			t.Errorf("%s: profiles %v", name, s.Profiles)
		}
	}
	load := c.Services["load"]
	if !slices.Equal(load.Profiles, []string{"load"}) || load.Restart != "no" {
		t.Errorf("load: profiles %v, restart %q, want its own profile and no restart", load.Profiles, load.Restart)
	}
	for name, s := range c.Services {
		if s.Image == "" || strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s: image %q, want an image with a version", name, s.Image)
		}
		if s.Build != "" {
			if _, err := os.Stat(filepath.Join(root, s.Build, "Dockerfile")); err != nil {
				t.Errorf("Dockerfile of %s: %v", name, err)
			}
		}
		for on, how := range s.DependsOn {
			if c.Services[on].Healthcheck.Test == nil || how.Condition != "service_healthy" {
				t.Errorf("%s depends on %s with the condition %q, want service_healthy and a health check", name, on, how.Condition)
			}
		}
	}
}

// TestComposeInstances checks that an instance accepts its command line and environment in
// docker-compose.yml, and that it depends on every server that they name.
func TestComposeInstances(t *testing.T) {
	c := readCompose(t)
	for _, name := range []string{"grabsvc-8004", "grabsvc-8005"} {
		t.Run(name, func(t *testing.T) {
			s := c.Services[name]
			if len(s.Command) == 0 || s.Command[0] != "grabsvc" {
				t.Fatalf("command %v", s.Command)
			}
			for key, value := range s.Environment {
				t.Setenv(key, expand(value))
			}
			cfg, err := instance.Parse(s.Command[1:])
			if err != nil {
				t.Fatal(err)
			}
			if cfg.AdminToken == "" {
				t.Error("the instance listens beyond loopback without an admin token, so no client can change its strategy")
			}
			servers := append(slices.Concat(cfg.Redis, cfg.Redlock), dbAddr(cfg.DB))
			if len(servers) != 1+5+1 {
				t.Errorf("servers %v, want Redis, 5 nodes and the database", servers)
			}
			for _, addr := range servers {
				host, _, _ := net.SplitHostPort(addr)
				if _, ok := s.DependsOn[host]; !ok {
					t.Errorf("the instance uses %s but does not depend on it", host)
				}
			}
			_, port, _ := net.SplitHostPort(cfg.Addr)
			if cfg.Instance != port || !strings.HasSuffix(s.Ports[0], ":"+port) || !strings.Contains(strings.Join(s.Healthcheck.Test, " "), ":"+port+"/readyz") {
				t.Errorf("%s listens on %s, publishes %v, is checked by %v", cfg.Instance, port, s.Ports, s.Healthcheck.Test)
			}
		})
	}
}

// TestComposeLoad checks that the load depends on its targets, and uses the database and the token of the
// instances. TestComposeFlags in cmd/loadgen checks its flags.
func TestComposeLoad(t *testing.T) {
	c := readCompose(t)
	load := c.Services["load"]
	if len(load.Command) < 2 || load.Command[0] != "loadgen" || load.Command[1] != "run" {
		t.Fatalf("command %v", load.Command)
	}
	given := map[string]string{}
	for _, arg := range load.Command[2:] {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		given[name] = expand(value)
	}
	for target := range strings.SplitSeq(given["targets"], ",") {
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(target, "http://"))
		if _, ok := load.DependsOn[host]; !ok {
			t.Errorf("load sends requests to %q but does not depend on it", target)
		}
	}
	an := c.Services["grabsvc-8004"].Environment
	if given["db"] != an["GRABSVC_DB"] || given["admin-token"] != expand(an["GRABSVC_ADMIN_TOKEN"]) {
		t.Errorf("load has the flags %v, want the database and the token of the instances: %v", given, an)
	}
}

// expand replaces each ${NAME:-default} by its default.
func expand(text string) string {
	return regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(text, "$1")
}

func dbAddr(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "tcp(")
	addr, _, _ := strings.Cut(rest, ")")
	return addr
}

// TestComposeObserves checks that Prometheus scrapes every instance in docker-compose.yml.
func TestComposeObserves(t *testing.T) {
	scraped, err := os.ReadFile(filepath.Join(root, "deploy/observe/prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range readCompose(t).Services {
		if len(s.Command) > 2 && s.Command[0] == "grabsvc" && !strings.Contains(string(scraped), name+s.Command[2]) {
			t.Errorf("Prometheus does not scrape %s%s", name, s.Command[2])
		}
	}
}
