package experiment

import (
	"reflect"
	"strings"
	"testing"
)

// Each value that matters for a figure is named if it differs. Unknown values and those that
// say nothing about the servers or the machine are not.
func TestDifferences(t *testing.T) {
	same := map[string]bool{"Vegeta": true, "Commit": true}
	kind := reflect.TypeFor[Environment]()
	for i := range kind.NumField() {
		var before, now, unknown Environment
		if kind.Field(i).Name == "CPUs" {
			before.CPUs, now.CPUs = 1, 10
		} else {
			reflect.ValueOf(&before).Elem().Field(i).SetString("one")
			reflect.ValueOf(&now).Elem().Field(i).SetString("10")
		}
		got := strings.Join(before.Differences(now), "; ")
		if name := kind.Field(i).Name; same[name] != (got == "") || got != "" && (!strings.HasPrefix(got, strings.ToLower(name)) || !strings.HasSuffix(got, " 10")) {
			t.Errorf("%s differs: got %q", name, got)
		}
		if d := append(before.Differences(before), before.Differences(unknown)...); len(d) > 0 {
			t.Errorf("nothing differs: got %q", d)
		}
	}
}
