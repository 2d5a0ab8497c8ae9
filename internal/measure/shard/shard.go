// Package shard splits the load of a run over several processes or machines, and brings their
// results together.
//
// Every shard makes the same plan from the same seed and sends its share of it. It keeps the
// answers as they came. A merge reads the answers of all shards as if one process had sent the
// whole plan, so it can count and judge them like those of a single run. Start at Shard for the
// split, and at Merge for the rest.
package shard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"grablab/internal/testbed/load"
)

// Shard is one share of a load, and the time at which all shards begin.
type Shard struct {
	load.Share
	Start time.Time
}

// maxCount bounds the number of shards.
const maxCount = 1000

// Parse reads a share in the form I/N, where I is from 0 to N-1.
func Parse(text string) (load.Share, error) {
	index, count, _ := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || i < 0 || i >= n || n > maxCount {
		return load.Share{}, fmt.Errorf("must be I/N, such as 0/4 to 3/4 for four shards, and at most %d shards", maxCount)
	}
	return load.Share{Index: i, Count: n}, nil
}

// FromEnv returns the share that the environment names in the form I/N, or "". Kubernetes sets
// JOB_COMPLETION_INDEX in each pod of an indexed Job.
func FromEnv(getenv func(string) string) string {
	index, count := getenv("JOB_COMPLETION_INDEX"), getenv("GRABLAB_SHARDS")
	if index == "" || count == "" {
		return ""
	}
	return index + "/" + count
}

// ParseStart reads the common start.
func ParseStart(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errors.New("must be a time such as 2026-11-20T21:30:00Z")
	}
	return t, nil
}

// Record describes a shard and its clock. The shard writes it into its result, and the merge reads it.
type Record struct {
	Index   int       `json:"index"`
	Count   int       `json:"count"`
	BeganAt time.Time `json:"began_at"` // when its plan began, by the clock of the shard
	ClockMS float64   `json:"clock_ms"` // how far that clock is ahead of the database's
}

// Merged describes the shards of a merged result.
type Merged struct {
	Count int `json:"count"`
	// Lost says which shards have no result, and why. The result is complete without it.
	Lost []string `json:"lost,omitempty"`
	// ClocksApartMS is the largest difference between the clocks of two shards.
	ClocksApartMS float64 `json:"clocks_apart_ms"`
}
