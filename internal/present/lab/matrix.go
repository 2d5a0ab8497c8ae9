package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// maxCells is the largest number of tests that the page accepts for a table.
const maxCells = 200

// matrix fills tables of verdicts, one at a time. It holds the latest table and its progress.
type matrix struct {
	ctx   context.Context // done when the lab ends
	cfg   Config
	state *state
	ended sync.WaitGroup

	// The mutex of state protects these fields.
	cancel  context.CancelFunc // stops the tests; nil if none is running
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
	Answer  string `json:"answer"` // empty before the first table
	Problem string `json:"problem,omitempty"`
	Folder  string `json:"folder,omitempty"`
	Heat    string `json:"heat"` // HTML from report.Heat
}

// fill starts to test a table's strategies in the background. It returns an error if another task
// is running.
func (m *matrix) fill(_ *http.Request, t Table) (any, error) {
	if err := checkTable(m.cfg, t); err != nil {
		return nil, err
	}
	release, err := m.state.occupy("a matrix (view Matrix)")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(m.ctx)
	m.change(func() {
		m.cancel, m.folder, m.problem = cancel, "", ""
		m.heat = report.Heat{Run: &experiment.Run{Cells: []experiment.Cell{}}, Strategies: t.Strategies, Faults: t.Faults, Prefix: "matrix/"}
		m.ended.Add(1)
	})
	go func() {
		defer m.ended.Done()
		defer release()
		err := m.cfg.Fill(ctx, t, lines(m.state.showProgress), func(folder string, run *experiment.Run) {
			m.change(func() { m.folder, m.heat.Run = folder, new(*run) }) // a copy, because run keeps changing
		})
		stopped := ctx.Err() != nil
		cancel()
		m.change(func() {
			m.cancel = nil
			if err != nil && !(stopped && errors.Is(err, context.Canceled)) {
				m.problem = err.Error()
			}
		})
	}()
	return nil, nil
}

// stop stops the tests and waits until they have ended. The table keeps the results so far.
func (m *matrix) stop(*http.Request, struct{}) (any, error) {
	var cancel context.CancelFunc
	m.state.locked(func() { cancel = m.cancel })
	if cancel != nil {
		cancel()
		m.state.showProgress("stopping: waiting for the running cells to end")
	}
	m.ended.Wait()
	return nil, nil
}

// change calls set while holding the mutex, and tells the pages to reload the table.
func (m *matrix) change(set func()) {
	m.state.locked(func() {
		set()
		m.state.status.Matrix.N++
		m.state.status.Matrix.Running = m.cancel != nil
	})
}

func (m *matrix) view(*http.Request) (any, error) {
	var v matrixView
	var heat report.Heat
	var running bool
	m.state.locked(func() {
		v, heat, running = matrixView{Problem: m.problem, Folder: m.folder}, m.heat, m.cancel != nil
	})
	if heat.Run == nil {
		return v, nil
	}
	done, of := len(heat.Run.Cells), len(heat.Strategies)*len(heat.Faults)
	switch {
	case running && done == 0:
		v.Answer = fmt.Sprintf("%d cells will run, and the first takes longest.", of)
	case running || !heat.Run.Complete:
		v.Answer = fmt.Sprintf("%d of %d cells. %s", done, of, heat.Answer())
	default:
		v.Answer = heat.Answer()
	}
	var b bytes.Buffer
	err := heat.HTML(&b)
	v.Heat = b.String()
	return v, err
}

// cell returns the test result for the strategy and fault in the request path.
func (m *matrix) cell(r *http.Request) (any, error) {
	name := experiment.CellName{Strategy: r.PathValue("strategy"), Fault: catalog.Fault(r.PathValue("fault"))}
	var heat report.Heat
	m.state.locked(func() { heat = m.heat })
	if cell, ok := heat.Cell(name); ok {
		return cell, nil
	}
	return nil, fmt.Errorf("%w: %.80q has not been run yet: choose it and press Fill", errMissing, name)
}

// matrixChoices returns the strategies and faults that the user can select.
func matrixChoices(cfg Config) (rows, faults []choice) {
	const everything = ^lock.Backend(0)
	has := everything
	if cfg.Stack.Kind == stack.Embedded {
		has = serversOf(cfg.Stack.Kind)
	}
	for _, name := range catalog.RunFaults {
		c := choiceOf(name)
		if f, err := fault.Find(name); err == nil {
			c.Refused = f.Refused(cfg.Stack.Kind, cfg.Stack.RunsRedis())
		}
		faults = append(faults, c)
	}
	return strategies(has, everything), faults
}

// checkTable returns an error that wraps errBad if the selection of tests is invalid.
func checkTable(cfg Config, t Table) error {
	rows, faults := matrixChoices(cfg)
	if len(t.Strategies) == 0 || len(t.Faults) == 0 {
		return fmt.Errorf("%w: choose at least one strategy and one fault (none, for no fault, counts too)", errBad)
	}
	if n := len(t.Strategies) * len(t.Faults); n > maxCells {
		return fmt.Errorf("%w: %d cells are too many for this page, which runs at most %d: choose fewer, or use loadgen run", errBad, n, maxCells)
	}
	for _, name := range t.Strategies {
		if err := among("strategy", name, rows); err != nil {
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
