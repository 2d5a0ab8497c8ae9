package proc

import (
	"os"
	"os/exec"
	"regexp"
	"slices"

	"grablab/internal/catalog"
)

// Barrier holds a child process back until Lift is called, and then lets it become its real
// program. If this process dies before that, the child exits.
type Barrier struct{ read, write *os.File }

// NewBarrier returns a Barrier for one child.
func NewBarrier() (*Barrier, error) {
	read, write, err := os.Pipe()
	return &Barrier{read, write}, err
}

// hold waits for Lift. It is a shell script, because a shell starts much faster than this program.
const hold = `read -r lifted <&3 || exit 1; exec "$@" 3<&-`

// shellName matches the names of variables that every shell passes on.
var shellName = regexp.MustCompile(`^[A-Za-z_]\w*=`)

// Command returns a command for the program at path. Once started, it waits for Lift and then
// replaces itself with the program. env is added to the environment of this process.
func (b *Barrier) Command(path string, args, env []string) *exec.Cmd {
	env = append(os.Environ(), env...)
	argv := append([]string{path}, args...)
	// Some shells drop variables with other names, such as spring.redis.host. env sets them again.
	if others := catalog.Filter(env, func(v string) bool { return !shellName.MatchString(v) }); len(others) > 0 {
		argv = slices.Concat([]string{"env"}, others, argv)
	}
	cmd := exec.Command("sh", append([]string{"-c", hold, "sh"}, argv...)...)
	cmd.Env = env
	cmd.ExtraFiles = []*os.File{b.read}
	return cmd
}

// Lift lets the child become its real program. If the child cannot start that program, it prints
// the reason and exits.
func (b *Barrier) Lift() error {
	_, err := b.write.Write([]byte{'\n'})
	return err
}

// Close closes the pipe.
func (b *Barrier) Close() {
	_ = b.read.Close()
	_ = b.write.Close()
}
