package stack

import (
	"context"
	"testing"

	"grablab/internal/testbed/proc"
)

// OnlyPATH makes the local stack look for its programs only in path.
func OnlyPATH(t *testing.T, path string) {
	t.Setenv("PATH", path)
	dirs, jars := programDirs, zooKeeperPaths
	programDirs, zooKeeperPaths = nil, nil
	t.Cleanup(func() { programDirs, zooKeeperPaths = dirs, jars })
}

// ReaperPid returns the process id of the stack's reaper.
func (s *Stack) ReaperPid() int { return s.reaper.cmd.Process.Pid }

// Pids returns the ids of all processes that the stack has started so far.
func (s *Stack) Pids() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := []int{s.ReaperPid()}
	for _, p := range s.procs {
		pids = append(pids, p.Pid())
	}
	return pids
}

// Alive reports whether a process runs. A zombie counts as ended.
func Alive(pid int) bool {
	_, ok := proc.StartTime(pid)
	return ok
}

// LogFile returns the file with the output of the process.
func (p *Process) LogFile() string { return p.log }

// ServeRedis starts the program exe as a Redis server of the stack.
func (s *Stack) ServeRedis(ctx context.Context, exe string) error {
	_, _, err := s.serve(ctx, redisServer(exe, s.Dir, "redis"), "")
	return err
}
