package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// tellCI writes a JUnit file for CI systems. On GitHub Actions, it also writes a summary and
// annotations.
func (s *settings) tellCI(run *experiment.Run, cases []report.Case, stderr io.Writer) error {
	var errs []error
	if s.junit != "" {
		errs = append(errs, writeJUnit(s.junit, run, cases))
	}
	if path := os.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		errs = append(errs, appendSummary(path, run, cases))
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		errs = append(errs, report.Annotations(stderr, cases))
	}
	return errors.Join(errs...)
}

func writeJUnit(path string, run *experiment.Run, cases []report.Case) error {
	var b bytes.Buffer
	err := report.JUnit(&b, run, cases)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = replaceFile(path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("-junit: %w", err)
	}
	return nil
}

// appendSummary appends to the summary file, which may contain the output of earlier commands.
func appendSummary(path string, run *experiment.Run, cases []report.Case) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = errors.Join(report.StepSummary(f, run, cases), f.Close())
	}
	if err != nil {
		return fmt.Errorf("GITHUB_STEP_SUMMARY: %w", err)
	}
	return nil
}
