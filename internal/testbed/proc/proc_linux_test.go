package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// start starts a shell command, and kills it at the end of the test.
func start(t *testing.T, script string, with ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	for _, f := range with {
		f(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestFind checks that Find returns a running process, but neither a zombie, nor a reaped process, nor
// the current process. StartTime must know only the running process.
func TestFind(t *testing.T) {
	cmd := start(t, "exec sleep 60")
	pid := cmd.Process.Pid
	p, err := Find(pid)
	if err != nil || p.Pid != pid {
		t.Errorf("running: %v, %v", p, err)
	}
	began, runs := StartTime(pid)
	if again, _ := StartTime(pid); !runs || again != began || strings.HasPrefix(began, " ") || len(strings.Fields(began)) != 2 {
		t.Errorf("running: began at %q, then at %q", began, again)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
	}
	for _, state := range []string{"a zombie", "reaped"} {
		if _, err := Find(pid); !errors.Is(err, ErrGone) {
			t.Errorf("Find of a process that is %s: error %v", state, err)
		}
		if began, runs := StartTime(pid); runs || began != "" {
			t.Errorf("%s: began at %q, runs %v", state, began, runs)
		}
		_ = cmd.Wait()
	}
	if _, err := Find(os.Getpid()); !errors.Is(err, ErrSelf) {
		t.Errorf("this process: %v", err)
	}
}

// TestStartTimeIn reads the status of processes with unusual names, in each state. Only a zombie and a dead
// process have ended. A status without a start time must not count as a running process.
func TestStartTimeIn(t *testing.T) {
	between := strings.Repeat(" 1", 18) // the fields between the state and the start time
	for _, name := range []string{"sh", "a b", ")", "a) Z 1 (b", "X"} {
		for _, state := range "RSDTtZX" {
			for rest, whole := range map[string]bool{between + " 4711": true, between + " 4711 5 6": true, between: false, "": false} {
				want, runs := "", whole && state != 'Z' && state != 'X'
				if runs {
					want = bootID() + " 4711"
				}
				text := fmt.Sprintf("7 (%s) %c%s\n", name, state, rest)
				if began, ok := startTimeIn([]byte(text)); began != want || ok != runs {
					t.Errorf("%q: began at %q, runs %v, want %q, %v", text, began, ok, want, runs)
				}
			}
		}
	}
	if began, runs := startTimeIn(nil); began != "" || runs {
		t.Errorf("an empty status: began at %q, runs %v", began, runs)
	}
}

// TestContinueAtEnd pauses two processes. Both must stay paused until the returned function resumes them.
func TestContinueAtEnd(t *testing.T) {
	var pids []int
	for range 2 {
		pids = append(pids, start(t, "exec sleep 60").Process.Pid)
	}
	paused := func(pid int) bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(time.Minute); !paused(pid) && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
	}
	before := Groups(os.Getpid())
	done, err := ContinueAtEnd(pids)
	if err != nil {
		t.Fatal(err)
	}
	helpers := slices.DeleteFunc(Groups(os.Getpid()), func(g int) bool { return slices.Contains(before, g) })
	if len(helpers) != 1 {
		t.Fatalf("the helper is in the groups %v, so the end of this program's terminal may end it", helpers)
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", helpers[0])); err != nil || dir != "/" {
		t.Errorf("the helper keeps the folder %s in use: %v", dir, err)
	}
	for _, want := range []bool{true, false} {
		if !want {
			if err := done(); err != nil {
				t.Error(err)
			}
		}
		for i, pid := range pids {
			if got := paused(pid); got != want {
				t.Errorf("process %d is paused: %v, want %v", i, got, want)
			}
		}
	}
}

// TestContinueAtEndFails checks that a program learns that no helper has started.
func TestContinueAtEndFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if done, err := ContinueAtEnd(nil); err == nil || done != nil {
		t.Errorf("without a shell: %v", err)
	}
}

// TestMarked starts processes with a variable, and others with similar ones. Marked must return exactly those with
// the variable, but never this process.
func TestMarked(t *testing.T) {
	mark := fmt.Sprint("PROC_TEST_MARK=", os.Getpid())
	with := func(variables ...string) int {
		return start(t, "exec sleep 60", Detached, func(c *exec.Cmd) { c.Env = append(os.Environ(), variables...) }).Process.Pid
	}
	want := []int{with(mark), with("A=1", mark, "B=2")}
	for _, other := range []string{"A=1", mark + "0", "X" + mark, "A=" + mark} {
		with(other)
	}
	got := Marked(mark)
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("marked are %v, want %v", got, want)
	}
	inherited, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(inherited), "\x00")
	if pids := Marked(first); slices.Contains(pids, os.Getpid()) || !slices.Contains(pids, want[0]) {
		t.Errorf("%s: marked are %v, want %d, but not %d", first, pids, want[0], os.Getpid())
	}
}

// TestPassed passes two pipes to a child process, which runs this test again. The child must get them in
// their order, and a grandchild must inherit neither.
func TestPassed(t *testing.T) {
	const asChild = "PROC_TEST_CHILD"
	if os.Getenv(asChild) != "" {
		files := Passed(2)
		text, _ := io.ReadAll(files[0])
		inherits := exec.Command("sh", "-c", "[ -e /proc/$$/fd/3 ] || [ -e /proc/$$/fd/4 ]").Run() == nil
		fmt.Fprintf(files[1], "read %q, inherited %v", text, inherits)
		return
	}
	down, toChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromChild, up, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPassed$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), asChild+"=1"), []*os.File{down, up}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	down.Close()
	up.Close()
	_, _ = toChild.WriteString("hello")
	toChild.Close()
	got, _ := io.ReadAll(fromChild)
	fromChild.Close()
	if err := cmd.Wait(); err != nil || string(got) != `read "hello", inherited false` {
		t.Errorf("the child answers %q, %v", got, err)
	}
}

// TestGroups starts a shell with a child. A signal to the group must reach both.
func TestGroups(t *testing.T) {
	for name, with := range map[string]func(*exec.Cmd){"group": NewProcessGroup, "session": Detached} {
		for end, how := range map[string]func(int){
			"signal": func(pid int) { _ = Signal(pid, syscall.SIGTERM) },
			"kill":   KillRest,
		} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := start(t, "sleep 60 & wait", with, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{w} })
			w.Close()
			if group, err := syscall.Getpgid(cmd.Process.Pid); err != nil || group != cmd.Process.Pid {
				t.Errorf("%s: the group is %d, %v", name, group, err)
			}
			how(cmd.Process.Pid)
			_ = cmd.Wait()
			_ = r.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := r.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // the read ends once no process has the pipe open
				t.Errorf("%s, %s: the child still runs: %v", name, end, err)
			}
			r.Close()
		}
	}
}

// TestSignalTree checks that a signal to a shell also reaches its grandchild in another session.
func TestSignalTree(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := start(t, "(setsid sh -c 'echo; sleep 600' & wait) & wait", NewProcessGroup, func(c *exec.Cmd) { c.Stdout = w })
	w.Close()
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if groups := Groups(cmd.Process.Pid); len(groups) != 2 || groups[0] != cmd.Process.Pid {
		t.Errorf("process %d has the groups %v, want its own and another one", cmd.Process.Pid, groups)
	}
	if err := SignalTree(cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF { // the read ends once no process has the pipe open
		t.Errorf("the grandchild still runs: %v", err)
	}
	member := start(t, "setsid sh -c 'echo; exec sleep 600' & wait", func(c *exec.Cmd) { r, c.Stdout = pipe(t) })
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := SignalTree(member.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
		t.Errorf("a signal to a process that leads no group, but whose child does: %v", err)
	}
	if err := SignalTree(1<<22+1, syscall.SIGKILL); err != syscall.ESRCH { // process IDs are smaller
		t.Errorf("a signal to a group that does not exist: %v", err)
	}
}

// pipe returns a pipe. The test closes its reading end.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// TestOwnProcess checks which files IsOwn recognizes as the current user's.
func TestOwnProcess(t *testing.T) {
	file, err := os.Stat(t.TempDir())
	if err != nil || !IsOwn(file) {
		t.Errorf("a new folder belongs to another user: %v", err)
	}
	if made, err := (fstest.MapFS{"a": {}}).Stat("a"); err != nil || IsOwn(made) {
		t.Errorf("a file without an owner is our own: %v", err)
	}
	if os.Getuid() == 0 {
		dir := t.TempDir()
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if other, err := os.Stat(dir); err != nil || IsOwn(other) {
			t.Errorf("a folder of another user is our own: %v", err)
		}
	}
}

// TestEndWithParent checks that EndWithParent requests SIGTERM for the end of the parent, and that
// NewProcessGroup keeps this setting.
func TestEndWithParent(t *testing.T) {
	cmd := exec.Command("true")
	EndWithParent(cmd)
	NewProcessGroup(cmd)
	if a := cmd.SysProcAttr; a.Pdeathsig != syscall.SIGTERM || !a.Setpgid {
		t.Errorf("the attributes of the process are %+v", a)
	}
}
