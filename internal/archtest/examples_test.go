package archtest

import (
	"encoding/xml"
	"os"
	"regexp"
	"slices"
	"testing"

	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/target"
)

// TestJMeterPlan checks that article.jmx sends the same load as the scenario article. Ten users grab at each
// of two instances, and each user is a different driver.
func TestJMeterPlan(t *testing.T) {
	text, err := os.ReadFile("../../examples/jmeter/article.jmx")
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(text, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	all := func(name string) (found []string) {
		for _, m := range regexp.MustCompile(`<stringProp name="`+regexp.QuoteMeta(name)+`">(.*)</stringProp>`).FindAllSubmatch(text, -1) {
			found = append(found, string(m[1]))
		}
		return found
	}
	path, body, _ := target.Own.Request(77, 99)
	generic := func(s string) string {
		return regexp.MustCompile(`77|99|\$\{order\}|\$\{__intSum\(\$\{__threadNum\},(0|10)\)\}| `).ReplaceAllString(s, "")
	}
	for _, p := range all("HTTPSampler.path") {
		if generic(p) != generic(string(path)) {
			t.Errorf("the path is %s, but an instance expects %s", p, path)
		}
	}
	bodies := all("Argument.value")
	bodies = bodies[len(bodies)-2:]
	for _, b := range bodies {
		if generic(b) != generic(string(body)) {
			t.Errorf("the body is %s, but an instance expects %s", b, body)
		}
	}
	if bodies[0] == bodies[1] {
		t.Error("both instances get requests from the same drivers")
	}
	if ports := all("HTTPSampler.port"); !slices.Equal(ports, []string{"8004", "8005"}) {
		t.Errorf("ports %q", ports)
	}
	i := slices.IndexFunc(experiment.Scenarios, func(s experiment.Scenario) bool { return s.Name == "article" })
	if users := all("ThreadGroup.num_threads"); experiment.Scenarios[i].Config.Drivers != 20 || !slices.Equal(users, []string{"10", "10"}) {
		t.Errorf("the plan has %q users, and the scenario has %d drivers", users, experiment.Scenarios[i].Config.Drivers)
	}
}
