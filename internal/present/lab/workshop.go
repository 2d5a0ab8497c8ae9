package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"grablab/internal/present/diagram"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
)

// lessons serves the workshop. It runs the commands of one exercise at a time.
type lessons struct {
	ctx   context.Context // done when the lab ends
	state *state
	open  func(lang string) (*workshop.Session, error)

	mu       sync.Mutex
	job      *job // the current or last job; nil if there was none
	drawings map[source][]diagram.Diagram
	ending   sync.WaitGroup
}

// source says which part of an exercise the diagrams show: its commands, or the file that the user
// submitted.
type source struct {
	number int
	handed bool
}

// Job tells the page how an exercise's commands progress.
type Job struct {
	Number  int     `json:"number"` // the exercise's number
	Checks  bool    `json:"checks"` // whether the job checks an answer
	Running bool    `json:"running"`
	Seconds float64 `json:"seconds"`
	Step    int     `json:"step"` // the current command's number
	Of      int     `json:"of"`   // number of commands; 0 if unknown
	Printed string  `json:"printed"`
	Stopped bool    `json:"stopped"`
	Problem string  `json:"problem"`
}

type job struct {
	began    time.Time
	end      context.CancelFunc
	drawings []diagram.Diagram // only the commands use it

	mutex
	seen Job
}

// maxOutput limits how many bytes of a job's output the page shows.
const maxOutput = 256 << 10

func (j *job) look() (seen Job) {
	defer j.lock()()
	if seen = j.seen; seen.Running {
		seen.Seconds = time.Since(j.began).Seconds()
	}
	return seen
}

// Write keeps the commands' output, up to maxOutput bytes. It silently drops the rest, so that the
// commands can continue.
func (j *job) Write(text []byte) (int, error) {
	defer j.lock()()
	room := max(0, maxOutput-len(j.seen.Printed))
	j.seen.Printed += string(text[:min(room, len(text))])
	return len(text), nil
}

// session opens a workshop session with the saved progress. If the exercise or language does not
// exist, the error wraps errBad.
func (l *lessons) session(lang, number string) (s *workshop.Session, e workshop.Exercise, err error) {
	if number != "" {
		n, err := strconv.Atoi(number)
		found, ok := workshop.Find(n)
		if err != nil || !ok {
			return nil, e, fmt.Errorf("%w: there is no exercise %.20q: use a number from 1 to %d", errBad, number, len(workshop.Exercises))
		}
		e = found
	}
	s, err = l.open(lang)
	return s, e, asPageError(err)
}

// classroom holds the data above the exercises on the page, such as the score and the last job.
type classroom struct {
	workshop.Overview
	Languages []string          `json:"languages"`
	Labels    map[string]string `json:"labels"`
	Job       *Job              `json:"job"`
}

func (l *lessons) overview(r *http.Request) (any, error) {
	j := l.lastJob() // read the job before the progress, so that the progress includes a finished job's points
	s, _, err := l.session(r.FormValue("lang"), "")
	if err != nil {
		return nil, err
	}
	return classroom{s.Overview(), workshop.Languages, s.Texts.Under("ui."), j}, nil
}

// lesson contains the parts of an exercise that the user may see now, and its diagrams.
type lesson struct {
	workshop.View
	Drawings []drawing `json:"drawings"`
}

type drawing struct {
	diagram.Diagram
	Handed bool `json:"handed"` // whether the diagram shows the file that the user submitted
}

// lesson returns an exercise of the workshop, with the drawings of its last run.
func (l *lessons) lesson(r *http.Request) (any, error) {
	s, e, err := l.session(r.FormValue("lang"), r.PathValue("n"))
	if err != nil {
		return nil, err
	}
	v, err := s.View(e)
	if err != nil || !v.Ran {
		return lesson{v, []drawing{}}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []drawing{}
	for _, handed := range []bool{true, false} {
		for _, d := range l.drawings[source{e.Number, handed}] {
			all = append(all, drawing{d, handed})
		}
	}
	return lesson{v, all}, nil
}

func (l *lessons) lastJob() *Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.job == nil {
		return nil
	}
	return new(l.job.look())
}

// Lesson is the body of a request in which the page predicts, runs or answers an exercise, or asks for
// a hint. Each kind of request sets only the fields that it needs.
type Lesson struct {
	Lang    string     `json:"lang"`
	Letter  string     `json:"letter"`  // letter of the predicted option
	Answers [][]string `json:"answers"` // one answer per question; an empty answer skips the question
	Text    string     `json:"text"`    // the submitted file's content
}

// asPageError converts a workshop error for the page. If the user caused it, the result wraps
// errBad.
func asPageError(err error) error {
	if errors.Is(err, workshop.ErrAnswer) {
		return fmt.Errorf("%w: %s", errBad, strings.TrimPrefix(err.Error(), workshop.ErrAnswer.Error()+": "))
	}
	return err
}

// atOnce calls do, which may change the user's progress. While a command runs, it instead returns
// an error, because the command changes the progress too.
func (l *lessons) atOnce(r *http.Request, in Lesson, do func(*workshop.Session, workshop.Exercise) error) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.job; j != nil && j.look().Running {
		return nil, fmt.Errorf("%w: exercise %d is running: stop it, or wait until it ends", errBusy, j.look().Number)
	}
	s, e, err := l.session(in.Lang, r.PathValue("n"))
	if err != nil {
		return nil, err
	}
	s.Out = io.Discard
	return nil, asPageError(do(s, e))
}

func (l *lessons) predict(r *http.Request, in Lesson) (any, error) {
	return l.atOnce(r, in, func(s *workshop.Session, e workshop.Exercise) error {
		err := s.Predict(e, in.Letter)
		if err == nil && len(e.Show) == 0 { // the exercise has no commands, so the run ends at once
			err = s.Run(r.Context(), e)
		}
		return err
	})
}

func (l *lessons) hint(r *http.Request, in Lesson) (any, error) {
	return l.atOnce(r, in, func(s *workshop.Session, e workshop.Exercise) error { return s.Hint(e) })
}

// inTurn runs an exercise's commands in the background. It returns an error if another task is
// running.
func (l *lessons) inTurn(r *http.Request, in Lesson, as Job, may func(*workshop.Session, workshop.Exercise) error, do func(context.Context, *workshop.Session, workshop.Exercise) error) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready := false
	l.state.locked(func() { ready = l.state.status.Phase != Starting })
	if !ready {
		return nil, fmt.Errorf("%w: the servers of the lab are still starting: try again in a few seconds", errBusy)
	}
	j := &job{began: time.Now(), seen: as}
	s, e, err := l.session(in.Lang, r.PathValue("n"))
	if err == nil {
		err = asPageError(may(s, e))
	}
	if err != nil {
		return nil, err
	}
	release, err := l.state.occupy(fmt.Sprintf("exercise %d (view Workshop)", e.Number))
	if err != nil {
		return nil, err
	}
	j.begin(s, e)
	ctx, end := context.WithCancel(l.ctx)
	j.end, l.job = end, j
	from := source{e.Number, as.Checks}
	delete(l.drawings, from)
	l.ending.Go(func() {
		defer end()
		defer release()
		err := do(ctx, s, e)
		l.mu.Lock()
		l.drawings[from] = j.drawings
		l.mu.Unlock()
		j.ended(ctx, err)
	})
	return nil, nil
}

// begin lets the session write its output and its diagrams to the job.
func (j *job) begin(s *workshop.Session, e workshop.Exercise) {
	j.seen.Number, j.seen.Running = e.Number, true
	if !j.seen.Checks {
		j.seen.Of = len(e.Show)
	}
	draws := !j.seen.Checks || e.TakesFile() // the diagrams of the user's file do not reveal the solution
	s.Out, s.Told = j, io.Discard
	command := s.Do
	s.Do = func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
		j.locked(func() { j.seen.Step++ })
		o, err := command(ctx, args, out)
		if err == nil && draws {
			j.drawings = append(j.drawings, report.Drawings(o.Run, o.Explored)...)
		}
		return o, err
	}
}

// ended records how the commands ended, so that the page can show it.
func (j *job) ended(ctx context.Context, err error) {
	defer j.lock()()
	j.seen.Running, j.seen.Seconds = false, time.Since(j.began).Seconds()
	switch {
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		j.seen.Stopped = true
	case err != nil:
		j.seen.Problem = strings.TrimPrefix(err.Error(), workshop.ErrAnswer.Error()+": ")
	}
}

func (l *lessons) run(r *http.Request, in Lesson) (any, error) {
	return l.inTurn(r, in, Job{}, (*workshop.Session).MayRun, func(ctx context.Context, s *workshop.Session, e workshop.Exercise) error {
		return s.Run(ctx, e)
	})
}

func (l *lessons) answer(r *http.Request, in Lesson) (any, error) {
	return l.inTurn(r, in, Job{Checks: true}, (*workshop.Session).MayAnswer, func(ctx context.Context, s *workshop.Session, e workshop.Exercise) error {
		for i, words := range in.Answers {
			if i < len(e.Questions) && e.Questions[i].File && len(words) > 0 {
				path, err := s.Keep(e, in.Text)
				if err != nil {
					return err
				}
				in.Answers[i] = []string{path}
			}
		}
		return s.Answer(ctx, e, in.Answers)
	})
}

// stop cancels the current job and waits until it has ended.
func (l *lessons) stop(*http.Request, struct{}) (any, error) {
	l.mu.Lock()
	j := l.job
	l.mu.Unlock()
	if j != nil {
		j.end()
		l.ending.Wait()
	}
	return nil, nil
}

func (l *lessons) handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/workshop", readHandler(l.overview))
	mux.HandleFunc("GET /api/workshop/job", readHandler(func(*http.Request) (any, error) { return l.lastJob(), nil }))
	mux.HandleFunc("GET /api/workshop/{n}", readHandler(l.lesson))
	mux.HandleFunc("POST /api/workshop/stop", startHandler(l.stop))
	mux.HandleFunc("POST /api/workshop/{n}/predict", startHandler(l.predict))
	mux.HandleFunc("POST /api/workshop/{n}/run", startHandler(l.run))
	mux.HandleFunc("POST /api/workshop/{n}/answer", startHandler(l.answer))
	mux.HandleFunc("POST /api/workshop/{n}/hint", startHandler(l.hint))
}
