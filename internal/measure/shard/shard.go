// Package shard splits a load among several processes or machines (shards), and combines their
// results.
//
// Every shard makes the same plan from the same seed, but sends only its part of the requests. A
// merge then judges the answers as if one process had sent everything. Start reading at Shard and
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

// Shard is one part of a load, together with the time at which all parts begin.
type Shard struct {
	load.Share
	Start time.Time
}

const maxCount = 1000

// Parse parses a shard such as 0/4, which is the first of four. It returns an error if the index is
// not smaller than the count.
func Parse(text string) (load.Share, error) {
	index, count, _ := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || i < 0 || i >= n || n > maxCount {
		return load.Share{}, fmt.Errorf("must be I/N, as in 0/4 to 3/4 for four shards, with at most %d shards", maxCount)
	}
	return load.Share{Index: i, Count: n}, nil
}

// FromEnv returns the shard of this process, such as 0/4, or "" if the environment does not name
// one. In the pods of an indexed Job, Kubernetes sets JOB_COMPLETION_INDEX to the index.
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

// Record contains what loadgen merge must know about a shard: which share of the requests it sent,
// and how its clock differs from the database's clock.
type Record struct {
	Index   int       `json:"index"`
	Count   int       `json:"count"`
	BeganAt time.Time `json:"began_at"` // when the shard's plan began, by the clock of the shard
	ClockMS float64   `json:"clock_ms"` // how far that clock is ahead of the database's clock
}

// Merged says from how many shards a result was merged, and what limits its accuracy.
type Merged struct {
	Count int `json:"count"`
	// Lost lists the shares whose results are missing, with the reasons. It is empty if the result
	// is complete.
	Lost []string `json:"lost,omitempty"`
	// ClocksApartMS is the largest difference between the clocks of two shards, in milliseconds.
	ClocksApartMS float64 `json:"clocks_apart_ms"`
}
