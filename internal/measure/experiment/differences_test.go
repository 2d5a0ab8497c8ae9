package experiment

import (
	"reflect"
	"strings"
	"testing"
)

// TestDifferences checks that each field of the environment that can affect figures is named if it
// differs. Unknown values, the commit and the vegeta version must not be named.
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
			t.Errorf("%s is equal or unknown: got %q", kind.Field(i).Name, d)
		}
	}
}
