package instance_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDashboard checks that the dashboard uses only metrics that an instance reports after its first
// grab.
func TestDashboard(t *testing.T) {
	url, _ := run(t, configOf(t, "-strategy", "mutex"))
	open(t, url)
	<-grabbing(t, url, "/orders/1/grab")
	_, served := get(t, url+"/metrics")

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RawSQL string }
		}
	}
	text, err := os.ReadFile("../../../deploy/observe/grafana/dashboards/grablab.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`grab_[a-z_]+(\{le="[^"]+"\})?`)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			names := named.FindAllString(target.Expr, -1)
			if len(names) == 0 && target.RawSQL == "" {
				t.Errorf("%s shows nothing", p.Title)
			}
			for _, name := range names {
				metric, bucket, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
				if !regexp.MustCompile(`(?m)^` + metric + `[ {].*` + bucket).MatchString(served) {
					t.Errorf("%s: /metrics has no %s", p.Title, name)
				}
			}
		}
	}
	if len(dashboard.Panels) < 6 {
		t.Errorf("the dashboard has only %d panels", len(dashboard.Panels))
	}
}
