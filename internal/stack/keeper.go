package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The hidden first arguments by which a program is one of a stack's helpers.
const (
	keeperCommand = "stack-keeper"
	gateCommand   = "stack-gate"
)

var (
	self   string // this program; "" until BeHelper has been called
	errNot = errors.New("stack: main must call stack.BeHelper first")
)

// BeHelper turns this process into a helper of a stack, if it was started as
// one: then it does not return. Every program that starts stacks calls it first
// in main, and every test binary in TestMain.
func BeHelper() {
	exe, err := os.Executable()
	if err == nil {
		self = exe
	}
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case keeperCommand:
		err = keep(os.Stdin, os.Stdout)
	case gateCommand:
		err = passGate(os.Args[2:])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keeper is a process that outlives this one by just long enough to end its
// children and remove its folder. It knows of the end because the pipe that
// feeds its standard input closes, and that happens even to a process which is
// killed.
type keeper struct {
	dir string // which the keeper made, so that there is always one to remove it

	mu      sync.Mutex
	cmd     *exec.Cmd
	request io.WriteCloser
	answer  *bufio.Reader
}

func startKeeper() (*keeper, error) {
	if self == "" {
		return nil, errNot
	}
	k := &keeper{cmd: exec.Command(self, keeperCommand)}
	k.cmd.Dir = "/"
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if k.request, err = k.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("stack: keeper: %w", err)
	}
	answer, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("stack: keeper: %w", err)
	}
	k.answer = bufio.NewReader(answer)
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("stack: keeper: %w", err)
	}
	if k.dir, err = k.hear(); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// watch returns once the keeper knows the process, which leads a group.
func (k *keeper) watch(pid int) error { return k.tell("watch", pid) }

// forget is for a process that has ended.
func (k *keeper) forget(pid int) { _ = k.tell("forget", pid) }

func (k *keeper) tell(verb string, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := fmt.Fprintln(k.request, verb, pid); err != nil {
		return fmt.Errorf("stack: keeper: %w", err)
	}
	_, err := k.hear()
	return err
}

// hear reads one answer: "ok" and a word, or "error" and why.
func (k *keeper) hear() (string, error) {
	line, err := k.answer.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("stack: keeper: %w", err)
	}
	verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if verdict != "ok" {
		return "", fmt.Errorf("stack: keeper: %s", rest)
	}
	return rest, nil
}

// close has the keeper remove the folder and end what may still run.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.request.Close()
	if err := k.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("stack: keeper: %w", err), os.RemoveAll(k.dir))
	}
	return nil
}

// keep is the life of the keeper.
func keep(requests io.Reader, answers io.Writer) error {
	// Whoever ends a program by its name means the parent. An answer to a
	// parent that has died must not kill either (SIGPIPE).
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)

	dir, err := makeDir()
	if err != nil {
		fmt.Fprintln(answers, "error", err)
		return err
	}
	fmt.Fprintln(answers, "ok", dir)

	watched := map[int]string{} // when each process was started
	lines := bufio.NewScanner(requests)
	for lines.Scan() {
		verb, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		switch {
		case err != nil || pid <= 1:
			fmt.Fprintf(answers, "error not a process: %q\n", number)
			continue
		case verb == "forget":
			delete(watched, pid)
		default:
			began, ok := startOf(pid)
			if !ok {
				fmt.Fprintf(answers, "error process %d has ended\n", pid)
				continue
			}
			watched[pid] = began
		}
		fmt.Fprintln(answers, "ok")
	}
	return errors.Join(end(watched), removeDir(dir))
}

// makeDir makes the folder. A socket's path in it must fit into 103 bytes, and
// some systems' temporary folders do not leave room for that.
func makeDir() (string, error) {
	base := os.TempDir()
	if len(base) > 60 {
		base = "/tmp"
	}
	return os.MkdirTemp(base, "grablab-")
}

const (
	politeTimeout = time.Second     // for what an instance may want to give back
	killTimeout   = 5 * time.Second // for a disk that is slow to let go
)

// end ends the groups of the processes: first the polite way, then what is left
// of them, for a group can outlive its leader.
func end(watched map[int]string) error {
	signalAll(watched, syscall.SIGTERM)
	signalAll(watched, syscall.SIGCONT) // a stopped process cannot end
	awaitEnd(watched, politeTimeout)
	signalAll(watched, syscall.SIGKILL)
	if left := awaitEnd(watched, killTimeout); len(left) > 0 {
		return fmt.Errorf("stack: processes %v outlive SIGKILL", left)
	}
	return nil
}

// signalAll spares a group whose number has been given to somebody else.
func signalAll(watched map[int]string, sig syscall.Signal) {
	for pid, began := range watched {
		if now, ok := startOf(pid); !ok || now == began {
			_ = syscall.Kill(-pid, sig)
		}
	}
}

// awaitEnd returns the processes that still run after timeout.
func awaitEnd(watched map[int]string, timeout time.Duration) []int {
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		var left []int
		for pid, began := range watched {
			if now, ok := startOf(pid); ok && now == began {
				left = append(left, pid)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// removeDir tries again for a moment: the last files of a killed process can
// appear while the folder is being emptied.
func removeDir(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
