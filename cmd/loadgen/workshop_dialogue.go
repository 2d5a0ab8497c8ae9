package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/present/workshop"
)

// exercise continues an exercise: it asks for a prediction, runs the commands, and then asks the
// questions. If the command is not interactive, it stops early.
func (w *workshopSettings) exercise(ctx context.Context, s *workshop.Session, e workshop.Exercise) error {
	answersGiven := w.answer != "" || w.file != ""
	if !answersGiven || !s.Ran(e) {
		s.Show(e)
	}
	if w.predict != "" {
		if err := s.Predict(e, w.predict); err != nil {
			return err
		}
	}
	for !s.Predicted(e) {
		switch {
		case w.stdin == nil && answersGiven:
			return flags.Usage("workshop %d: the prediction is missing: add -predict LETTER", e.Number)
		case w.stdin == nil:
			s.HowTo(e, "predict")
			return nil
		}
		line, err := ask(ctx, w.stdin, s.AskPrediction(), s.Out)
		if err != nil {
			return err
		}
		switch err := s.Predict(e, line); {
		case errors.Is(err, workshop.ErrAnswer):
			fmt.Fprintln(s.Out, withoutPrefix(err, workshop.ErrAnswer))
		case err != nil:
			return err
		}
	}
	switch {
	case !s.Ran(e) || w.again:
		if err := s.Run(ctx, e); err != nil {
			return err
		}
	case !answersGiven:
		s.Recall(e)
	}
	for {
		given, err := w.answers(ctx, s, e)
		if err != nil || given == nil {
			return err
		}
		if err = s.Answer(ctx, e, given); answersGiven || !errors.Is(err, workshop.ErrAnswer) {
			return err
		}
		fmt.Fprintf(s.Out, "%v\n\n", withoutPrefix(err, workshop.ErrAnswer))
	}
}

// answers returns the answers that the user gave with flags, or otherwise asks the user. It returns
// nil if the command is not interactive, so that it cannot ask.
func (w *workshopSettings) answers(ctx context.Context, s *workshop.Session, e workshop.Exercise) ([][]string, error) {
	if w.answer != "" || w.file != "" {
		return w.answersFromFlags(e)
	}
	if s.Done(e) {
		s.Conclude(e)
		return nil, nil
	}
	var all [][]string
	for _, question := range s.Questions(e) {
		if question == "" {
			all = append(all, []string{workshop.Leave})
			continue
		}
		s.Print(question)
		if w.stdin == nil {
			continue
		}
		line, err := ask(ctx, w.stdin, "", s.Out)
		if err != nil {
			return nil, err
		}
		all = append(all, splitWords(cmp.Or(line, workshop.Leave)))
	}
	if w.stdin == nil {
		s.HowTo(e, "answer")
		return nil, nil
	}
	return all, nil
}

// splitWords splits a line at commas, including Chinese and Japanese commas.
func splitWords(line string) []string {
	words := strings.Split(strings.NewReplacer("，", ",", "、", ",").Replace(line), ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// answersFromFlags assigns the answers from the flags to the questions. Without -answer, it answers only the
// question that expects a file.
func (w *workshopSettings) answersFromFlags(e workshop.Exercise) ([][]string, error) {
	var words []string
	if w.answer != "" {
		words = splitWords(w.answer)
	}
	if w.file != "" {
		i := slices.IndexFunc(e.Questions, func(q workshop.Question) bool { return q.File })
		if i < 0 {
			return nil, flags.Usage("exercise %d does not take a file: give the answer with -answer", e.Number)
		}
		if words == nil {
			words = slices.Repeat([]string{workshop.Leave}, len(e.Questions)-1)
		}
		words = slices.Insert(words, min(i, len(words)), w.file)
	}
	empty := slices.Contains(words, "")
	var all [][]string
	for _, q := range e.Questions {
		n := q.Words()
		if len(words) > 0 && words[0] == workshop.Leave {
			n = 1
		}
		n = min(n, len(words))
		all, words = append(all, words[:n]), words[n:]
	}
	if empty || len(words) > 0 || slices.ContainsFunc(all, func(a []string) bool { return len(a) == 0 }) {
		return nil, flags.Usage("-answer %q: must have %s, separated by commas; - skips a question", w.answer, catalog.Plural(e.Words(), "value", "values"))
	}
	return all, nil
}

// ask prints a question and reads one line as the answer, unless ctx ends first.
func ask(ctx context.Context, in *bufio.Reader, question string, out io.Writer) (string, error) {
	fmt.Fprint(out, question+"> ")
	line, err := readLine(ctx, in)
	fmt.Fprintln(out)
	if errors.Is(err, io.EOF) { // the user has pressed Ctrl-D
		err = context.Canceled
	}
	return line, err
}

// readLine reads one line without the spaces around it, unless ctx ends first. It returns io.EOF if
// there are no more lines.
func readLine(ctx context.Context, in *bufio.Reader) (string, error) {
	var line string
	read := make(chan error, 1)
	go func() { // a read from a terminal cannot be cancelled, so this goroutine may outlive readLine
		var err error
		if line, err = in.ReadString('\n'); line != "" && errors.Is(err, io.EOF) { // the last line has no newline
			err = nil
		}
		read <- err
	}()
	select {
	case err := <-read:
		return strings.TrimSpace(line), err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
