// Package version reports the release and commit that a program was built from.
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

// Release is the newest release in CHANGELOG.md.
const Release = "0.3.0"

// Unknown stands for a commit or a module version that the program cannot determine.
const Unknown = "unknown"

// Line returns the output of the -version flag: the program's release and commit on one line.
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

// Commit returns the commit that the program was built from, according to the build information or
// git. It ends in "-dirty" if files had changed since the commit.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(stamped(info), fromGit(), Unknown)
}

// Of returns the version of a module that the program contains. A test binary has no build
// information, so it contains only Unknown versions.
func Of(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return Unknown
}

// stamped returns the commit from the build information, or "" if it contains none.
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

// fromGit returns the working directory's commit, or "" if this is not our repository. It is for
// "go run", which puts no commit into the build information.
func fromGit() string {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return ""
	}
	mod, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(top)), "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module grablab\n") {
		return ""
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*").Output() // ignore all tags
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
