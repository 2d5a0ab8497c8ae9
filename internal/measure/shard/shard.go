// Package shard splits a load among several processes or machines (shards), and combines their
// results.
//
// Every shard makes the same plan from the same seed, but sends only its share of the requests. A
// merge then judges the responses as if one process had sent everything. Start reading at Shard and
// Merge.
package shard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"grablab/internal/testbed/load"
)

// Shard is one share of a load, with the time at which all shards begin.
type Shard struct {
	load.Share
	Start time.Time
}

const maxCount = 1000

// Parse parses a shard such as 0/4, the first of four. It returns an error unless the index is
// smaller than the count.
func Parse(text string) (load.Share, error) {
	index, count, _ := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || i < 0 || i >= n || n > maxCount {
		return load.Share{}, fmt.Errorf("must be I/N, as in 0/4 to 3/4 for four shards, with at most %d shards", maxCount)
	}
	return load.Share{Index: i, Count: n}, nil
}

// FromEnv returns this process's shard, such as 0/4, or "" if the environment does not name one.
// Kubernetes sets JOB_COMPLETION_INDEX to the index in the pods of an indexed Job.
func FromEnv(getenv func(string) string) string {
	index, count := getenv("JOB_COMPLETION_INDEX"), getenv("GRABLAB_SHARDS")
	if index == "" || count == "" {
		return ""
	}
	return index + "/" + count
}

// ParseStart parses the time at which all shards begin to send.
func ParseStart(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errors.New("must be a time such as 2026-11-20T21:30:00Z")
	}
	return t, nil
}

// Record tells loadgen merge which share of the requests a shard sent, and how the shard's clock
// differs from the database's clock.
type Record struct {
	Index   int       `json:"index"`
	Count   int       `json:"count"`
	BeganAt time.Time `json:"began_at"` // when the shard's plan began, by the shard's clock
	ClockMS float64   `json:"clock_ms"` // how far that clock is ahead of the database's clock
}

// Merged records how many shards a result was merged from, and what limits its accuracy.
type Merged struct {
	Count int `json:"count"`
	// Lost lists the shards whose results are missing, with the reasons. If the result is complete,
	// Lost is empty.
	Lost []string `json:"lost,omitempty"`
	// ClocksApartMS is the largest clock difference between two shards in milliseconds.
	ClocksApartMS float64 `json:"clocks_apart_ms"`
}
