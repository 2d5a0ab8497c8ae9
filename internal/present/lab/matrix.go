package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/stack"
)

// Table selects strategies and faults. Every strategy is tested under every fault.
type Table struct {
	Strategies []string        `json:"strategies"`
	Faults     []catalog.Fault `json:"faults"`
}

// Filling receives a table's test results while the tests run.
type Filling struct {
	Cell     func(folder string, run *experiment.Run) // called after each result, with the run so far and its folder
	Progress io.Writer                                // receives progress lines
}

// maxCells is the largest number of tests that the page accepts for a table.
const maxCells = 200

// matrix holds the latest table of verdicts and its progress.
type matrix struct {
	ended sync.WaitGroup

	mu      sync.Mutex
	stop    context.CancelFunc // stops the tests; nil if none is running
	heat    report.Heat
	folder  string
	problem string
}

// MatrixStatus tells the page when to reload the table of verdicts.
type MatrixStatus struct {
	N       int  `json:"n"` // the number of changes so far
	Running bool `json:"running"`
}

// matrixView is the table of verdicts as the page receives it.
type matrixView struct {
	Table
	Answer  string `json:"answer"` // empty before the first table
	Problem string `json:"problem,omitempty"`
	Folder  string `json:"folder,omitempty"`
	Heat    string `json:"heat"` // HTML from report.Heat
}

// Fill starts to test a table's strategies in the background. It returns an error if another task
// is running.
func (l *Lab) Fill(t Table) error {
	if l.cfg.Fill == nil {
		return fmt.Errorf("%w: this lab was started without the matrix", errBad)
	}
	if err := l.checkTable(t); err != nil {
		return err
	}
	release, err := l.state.occupy("a matrix (view Matrix)")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	m := &l.matrix
	l.changeMatrix(func() {
		m.stop, m.folder, m.problem = cancel, "", ""
		m.heat = report.Heat{Run: &experiment.Run{Cells: []experiment.Cell{}}, Strategies: t.Strategies, Faults: t.Faults, Prefix: "matrix/"}
		m.ended.Add(1)
	})
	go func() {
		defer m.ended.Done()
		defer release()
		err := l.cfg.Fill(ctx, t, Filling{
			Cell: func(folder string, run *experiment.Run) {
				now := *run // copy, because run keeps changing
				l.changeMatrix(func() { m.folder, m.heat.Run = folder, &now })
			},
			Progress: lines(l.state.showProgress),
		})
		stopped := ctx.Err() != nil
		cancel()
		l.changeMatrix(func() {
			m.stop = nil
			if err != nil && !(stopped && errors.Is(err, context.Canceled)) {
				m.problem = err.Error()
			}
		})
	}()
	return nil
}

// StopFilling stops the tests and waits until they have ended. The table keeps the results so far.
func (l *Lab) StopFilling() {
	l.matrix.mu.Lock()
	stop := l.matrix.stop
	l.matrix.mu.Unlock()
	if stop != nil {
		stop()
		l.state.showProgress("stopping: waiting for the running cells to end")
	}
	l.matrix.ended.Wait()
}

// changeMatrix calls change while holding the mutex, and then tells the pages to reload the table.
func (l *Lab) changeMatrix(change func()) {
	l.matrix.mu.Lock()
	change()
	running := l.matrix.stop != nil
	l.matrix.mu.Unlock()
	l.state.locked(func() {
		l.state.status.Matrix.N++
		l.state.status.Matrix.Running = running
	})
}

func (l *Lab) matrixView() (v matrixView, err error) {
	m := &l.matrix
	m.mu.Lock()
	heat, running := m.heat, m.stop != nil
	v = matrixView{Table: Table{heat.Strategies, heat.Faults}, Problem: m.problem, Folder: m.folder}
	m.mu.Unlock()
	if heat.Run == nil {
		return v, nil
	}
	done, of := len(heat.Run.Cells), len(heat.Strategies)*len(heat.Faults)
	const incomplete = " The run is not complete."
	switch {
	case running && done == 0:
		v.Answer = fmt.Sprintf("%d cells will run, and the first takes longest.", of)
	case running:
		v.Answer = fmt.Sprintf("%d of %d cells. %s", done, of, strings.TrimSuffix(heat.Answer(), incomplete))
	case !heat.Run.Complete:
		v.Answer = fmt.Sprintf("Stopped after %d of %d cells. %s", done, of, strings.TrimSuffix(heat.Answer(), incomplete))
	default:
		v.Answer = heat.Answer()
	}
	var b bytes.Buffer
	err = heat.HTML(&b)
	v.Heat = b.String()
	return v, err
}

// matrixCell returns the test result for the strategy and fault in the request path.
func (l *Lab) matrixCell(r *http.Request) (any, error) {
	name := experiment.CellName{Strategy: r.PathValue("strategy"), Fault: catalog.Fault(r.PathValue("fault"))}
	l.matrix.mu.Lock()
	heat := l.matrix.heat
	l.matrix.mu.Unlock()
	if cell, ok := heat.Cell(name); ok {
		return cell, nil
	}
	return nil, fmt.Errorf("%w: %.80q has not been run yet: choose it and press Fill", errMissing, name)
}

// matrixChoices returns the strategies and faults that the user can select.
func (l *Lab) matrixChoices() (strategies, faults []choice) {
	if l.cfg.Fill == nil {
		return nil, nil
	}
	for _, s := range lock.Strategies {
		c := choice{Name: s.Name, About: s.Title}
		if l.cfg.Stack.Kind == stack.Embedded && s.Needs&^l.servers() != 0 {
			c.Refused = "needs -stack local"
		}
		strategies = append(strategies, c)
	}
	for _, name := range catalog.RunFaults {
		c := choiceOf(name)
		if f, err := fault.Find(name); err == nil {
			c.Refused = f.Refused(l.cfg.Stack.Kind, l.cfg.Stack.RunsRedis())
		}
		faults = append(faults, c)
	}
	return strategies, faults
}

// checkTable returns an error that wraps errBad if the selection of tests is invalid.
func (l *Lab) checkTable(t Table) error {
	strategies, faults := l.matrixChoices()
	if len(t.Strategies) == 0 || len(t.Faults) == 0 {
		return fmt.Errorf("%w: choose at least one strategy and one fault (none, for no fault, counts too)", errBad)
	}
	if n := len(t.Strategies) * len(t.Faults); n > maxCells {
		return fmt.Errorf("%w: %d cells are too many for this page, which runs at most %d: choose fewer, or use loadgen run", errBad, n, maxCells)
	}
	for _, name := range t.Strategies {
		if err := among("strategy", name, strategies); err != nil {
			return err
		}
	}
	for _, f := range t.Faults {
		if err := among("fault", string(f), faults); err != nil {
			return err
		}
	}
	return nil
}

func among(kind, name string, choices []choice) error {
	i := slices.IndexFunc(choices, func(c choice) bool { return c.Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("%w: there is no %s %.40q", errBad, kind, name)
	case choices[i].Refused != "":
		return fmt.Errorf("%w: %s: %s", errBad, name, choices[i].Refused)
	}
	return nil
}

// lines is an io.Writer that calls the function with each line.
type lines func(string)

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			l(line)
		}
	}
	return len(b), nil
}
