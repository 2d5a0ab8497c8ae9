package version

import (
	"bytes"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// TestChangelogBeginsWithTheRelease checks that the first release in the changelog, after the
// unreleased changes, is Release. Every section must have a name from Keep a Changelog.
func TestChangelogBeginsWithTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## [Unreleased]\n"))
	releases := regexp.MustCompile(`(?m)^## \[([^\]]*)\](.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(releases) == 0 {
		t.Fatal("the changelog has no release")
	}
	if releases[0][1] != Release {
		t.Errorf("the changelog begins with %s, but the program is %s", releases[0][1], Release)
	}
	for _, r := range releases {
		if !regexp.MustCompile(`^ - \d{4}-\d\d-\d\d$`).MatchString(r[2]) {
			t.Errorf("%s: want a date after it, not %q", r[1], r[2])
		}
	}
	for _, kind := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(" Added Changed Deprecated Removed Fixed Security ", " "+kind[1]+" ") {
			t.Errorf("there is no kind of change %q", kind[1])
		}
	}
}

func TestLine(t *testing.T) {
	stamp := func(modified string) *debug.BuildInfo {
		info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified}}}
		info.Main.Version = "v0.3.1-0.20261123"
		return info
	}
	for _, tt := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{stamp("false"), "0123456"},
		{stamp("true"), "0123456-dirty"},
		{&debug.BuildInfo{}, ""},
		{nil, ""},
	} {
		if got := stamped(tt.info); got != tt.want {
			t.Errorf("commit %q, want %q", got, tt.want)
		}
	}
	got := line("loadgen", stamp("true"), "0123456-dirty")
	if !strings.HasPrefix(got, "loadgen "+Release+", module v0.3.1-0.20261123, commit 0123456-dirty, go1.") {
		t.Errorf("Line returned %q", got)
	}
	if got := line("loadgen", nil, Unknown); !strings.Contains(got, "module unknown, commit unknown") {
		t.Errorf("Line without build information returned %q", got)
	}
}
