package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"grablab/internal/flags"
	"grablab/internal/present/lab"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/infile"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"
	"grablab/migrations"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// This file contains what all commands share: how they begin, how they end, and with which exit code.

// subcommand returns a function that parses a command's arguments, and then executes the command or
// prints its help. A signal stops the command.
func subcommand[S any](
	parse func([]string) (S, error), help func(w io.Writer, topic string),
	execute func(S, context.Context, io.Writer, io.Writer) error,
) func(context.Context, []string, io.Writer, io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		s, err := parse(args)
		if wanted, ok := errors.AsType[flags.HelpError](err); ok {
			help(stdout, wanted.Topic)
			return nil
		}
		if err != nil {
			return err
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		return execute(s, ctx, stdout, stderr)
	}
}

// untilSignal returns a context that ends at the first signal, or when no one reads the output any
// more. The command can then clean up. A second signal ends the process immediately.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, instance.EndSignals()...)
	forget := context.AfterFunc(ctx, stop)
	ctx, end := context.WithCancel(ctx)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE) // otherwise, a write to a closed pipe would end the process at once
	go func() {
		for {
			select {
			case <-pipe: // a connection that a server has closed causes this signal too
				if isClosed(os.Stdout) || isClosed(os.Stderr) {
					end()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(pipe); end(); forget(); stop() }
}

// isClosed reports whether the other end of a pipe is closed.
func isClosed(f *os.File) bool {
	state := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, err := unix.Poll(state, 0)
	return err == nil && state[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// announce prints the random seed, so that the user can repeat the run. It returns the writer for
// progress messages, and whether that writer is a terminal.
func announce(seed uint64, forPrograms, quiet bool, stdout, stderr io.Writer) (log io.Writer, tty bool) {
	f, ok := stderr.(*os.File)
	log, tty = stderr, ok && term.IsTerminal(int(f.Fd()))
	if quiet {
		log, tty = io.Discard, false
	}
	if forPrograms {
		stdout = log
	}
	fmt.Fprintf(stdout, "seed %d\n", seed)
	return log, tty
}

// notBegun cleans up after a command that failed or was interrupted before its first measurement. It
// removes the result folder, and returns an error that sets the exit code. unit names what is measured,
// such as "round".
func notBegun(err error, unit string, out *folder, stderr io.Writer) error {
	if failed := out.close(); failed != nil {
		return errors.Join(asUsageError(err), failed)
	}
	return orInterrupted(asUsageError(err), stderr, " before the first %s ended, so there are no results", unit)
}

// asUsageError turns errors that the user can fix, such as a wrong -ledger-query, into usage errors.
// It returns other errors unchanged.
func asUsageError(err error) error {
	for _, sentinel := range []error{stack.ErrRefused, fleet.ErrRefused, ledger.ErrQuery, migrations.ErrForeign, infile.ErrTooLarge, lab.ErrAddr} {
		if errors.Is(err, sentinel) {
			return flags.Usage("%w", err)
		}
	}
	return err
}

// exitCode is an error that only sets the exit code, because the reason was already printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// These are the exit codes of loadgen. For an error that is not an exitCode, loadgen exits with
// exitUsage if the error is a usage error, and with exitFailed otherwise.
const (
	exitDone        exitCode = 0
	exitFailed      exitCode = 1 // loadgen itself failed
	exitUsage       exitCode = 2
	exitAssert      exitCode = 3 // an -assert condition does not hold, or the result is not as expected
	exitInterrupted exitCode = 130
)

// conclude returns the exit code for err, and prints err unless the command has already done so.
func conclude(err error, stderr io.Writer) int {
	var code exitCode
	switch {
	case err == nil:
		return int(exitDone)
	case errors.As(err, &code):
		return int(code)
	case isClosed(os.Stdout) && errors.Is(err, syscall.EPIPE): // no one reads the output any more
		return int(exitInterrupted)
	case errors.Is(err, flags.ErrUsage):
		text := withoutPrefix(err, flags.ErrUsage).Error()
		fmt.Fprintf(stderr, "loadgen: %s\n", unquotedBreak.ReplaceAllString(text, "; $1"))
		return int(exitUsage)
	}
	fmt.Fprintf(stderr, "loadgen: %v\n", err)
	return int(exitFailed)
}

// unquotedBreak matches a line break that separates two errors. A line break in the quoted output
// of a process does not match, because those lines are indented.
var unquotedBreak = regexp.MustCompile(`\n(\S)`)

// withoutPrefix returns err without the text of sentinel at the beginning of its message.
func withoutPrefix(err, sentinel error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), sentinel.Error()+": "))
}

// orInterrupted returns err unless the user has interrupted the command. In that case, it prints
// "interrupted", followed by the text in left, and returns exitInterrupted.
func orInterrupted(err error, stderr io.Writer, left string, args ...any) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintf(stderr, "interrupted"+left+"\n", args...)
	return exitInterrupted
}

// relative returns path relative to the working directory, if it is below that directory.
func relative(path string) string {
	dir, err := os.Getwd()
	if rest, ok := strings.CutPrefix(path, dir+string(filepath.Separator)); ok && err == nil {
		return rest
	}
	return path
}

// program returns the command that started this program. Messages use it when they suggest a
// command line.
func program() string {
	if strings.Contains(os.Args[0], "/go-build") { // the program was started by go run
		return "go run ./cmd/loadgen"
	}
	return os.Args[0]
}
