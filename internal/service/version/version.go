// Package version says which version of Grab Lab a program is: the release that
// CHANGELOG.md begins with, and the commit that it was built from.
package version

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Release is the newest one of CHANGELOG.md.
const Release = "0.3.0"

// Unknown is a commit that nothing tells.
const Unknown = "unknown"

// Line is what -version prints for a program of that name.
func Line(program string) string {
	info, _ := debug.ReadBuildInfo()
	return line(program, info, Commit())
}

func line(program string, info *debug.BuildInfo, commit string) string {
	module := Unknown
	if info != nil {
		module = cmp.Or(info.Main.Version, Unknown)
	}
	return fmt.Sprintf("%s %s, module %s, commit %s, %s %s/%s", program, Release, module, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Commit is that of the source, by the build info, or else by git if the working
// directory lies in this project. It ends in "-dirty" if the tree had changes.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(stamped(info), fromGit(), Unknown)
}

// stamped is the commit that go build has written into the program; "": none.
func stamped(info *debug.BuildInfo) string {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	rev := settings["vcs.revision"]
	if len(rev) < 7 {
		return ""
	}
	if settings["vcs.modified"] == "true" {
		return rev[:7] + "-dirty"
	}
	return rev[:7]
}

// fromGit is the commit of the working directory, as go run has it; "": it is no part of
// this project.
func fromGit() string {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return ""
	}
	mod, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(top)), "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module grablab\n") {
		return ""
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
