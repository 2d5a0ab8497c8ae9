package lockbench

import (
	"cmp"
	"math"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// Figures contains the figures of one measurement, or the medians of several. An unknown figure is
// nil.
type Figures struct {
	Strategy     string   `json:"strategy"`
	Case         string   `json:"case"`
	Acquisitions int      `json:"acquisitions"`
	OpsPerS      float64  `json:"ops_per_s"` // acquisitions per second, all workers together
	P50US        float64  `json:"p50_us"`    // median time of an acquire plus a release, without the time between them
	P99US        float64  `json:"p99_us"`
	GapP50US     *float64 `json:"handoff_gap_p50_us"` // median time from a release call to the return of the next acquire, if a worker was waiting
	GapP99US     *float64 `json:"handoff_gap_p99_us"`
	GapMeanUS    *float64 `json:"handoff_gap_mean_us"`
	GapCrossUS   *float64 `json:"handoff_gap_across_p50_us"` // like GapP50US, but only between workers of different processes
	SentPerOp    *float64 `json:"commands_per_op"`           // commands or statements that clients sent per acquisition
	InsidePerOp  *float64 `json:"script_commands_per_op"`    // commands that scripts ran inside Redis per acquisition
	Jain         *float64 `json:"jain"`                      // Jain's fairness index; 1 if all workers got the lock equally often
	SelfRetake   *float64 `json:"self_retake"`               // share of acquisitions in which the last holder got the lock again
	Violations   *int     `json:"violations"`                // how many times a worker got the lock while another worker held it
}

// Slice is the measurement of one lock in one case and round.
type Slice struct {
	Figures
	Round      int     `json:"round"`
	Seconds    float64 `json:"seconds"`
	GaveUp     int     `json:"gave_up"`
	WaitP999MS float64 `json:"wait_p999_ms"`
	LongestMS  float64 `json:"longest_wait_ms"`
	Turns      *int    `json:"longest_wait_turns"` // the most acquisitions by other workers during one wait

	waits []float64 // the wait before each acquisition, in ms
}

// measure computes the figures of one subject in one case and round from its trace.
func measure(round int, t trace, subject Subject) Slice {
	holds := slices.SortedFunc(slices.Values(t.holds), func(a, b Hold) int { return cmp.Compare(a.Acquired, b.Acquired) })
	s := Slice{Round: round, Seconds: t.span.Seconds(), Figures: Figures{Strategy: subject.Name, Case: t.Name, Acquisitions: len(holds)}}
	costs := make([]float64, len(holds))
	s.waits = make([]float64, len(holds))
	for i, h := range holds {
		s.GaveUp += h.GaveUp
		costs[i] = us(h.Acquired - h.Asked + h.Done - h.Released)
		s.waits[i] = ms(h.Acquired - h.Asked)
	}
	s.OpsPerS = float64(t.counted) / s.Seconds
	slices.Sort(costs)
	s.P50US, s.P99US = percentile(costs, 0.5), percentile(costs, 0.99)
	slices.Sort(s.waits)
	s.WaitP999MS, s.LongestMS = percentile(s.waits, 0.999), percentile(s.waits, 1)

	if t.Workers > 1 && t.Wave == 0 {
		perWorker := make([]float64, t.Workers)
		for _, h := range holds {
			perWorker[h.Worker]++
		}
		s.Jain = new(jain(perWorker))
	}
	if t.contended() {
		s.SelfRetake = new(selfRetake(holds))
		s.Turns = new(longestTurns(holds))
		gaps, across := handoffGaps(holds, t.Case)
		if len(gaps) > 0 {
			s.GapMeanUS = new(mean(gaps))
			slices.Sort(gaps)
			s.GapP50US, s.GapP99US = new(percentile(gaps, 0.5)), new(percentile(gaps, 0.99))
		}
		if len(across) > 0 {
			slices.Sort(across)
			s.GapCrossUS = new(percentile(across, 0.5))
		}
	}
	if subject.Excludes != catalog.NoExclusion {
		s.Violations = new(violations(holds, t.Case, subject.Excludes))
	}
	if subject.Needs&(lock.ZooKeeper|lock.Etcd) == 0 { // the ZooKeeper and etcd clients do not count their requests
		ops := float64(len(holds))
		s.SentPerOp = new(float64(t.sent) / ops)
		if t.ranKnown && subject.Needs&(lock.Redis|lock.RedisQuorum) != 0 {
			s.InsidePerOp = new(max(0, float64(t.ran)-float64(t.sent)) / ops)
		}
	}
	return s
}

// handoffGaps returns the times in µs from a release to the next acquire, for cases in which the
// next worker was already waiting. across contains only the gaps between two processes. All holds
// must be of the same key, and sorted by acquire.
func handoffGaps(holds []Hold, c Case) (gaps, across []float64) {
	asked := catalog.Map(holds, func(h Hold) time.Duration { return h.Asked })
	slices.Sort(asked)
	for i := range len(holds) - 1 {
		freed := holds[i].Released
		wanted, _ := slices.BinarySearch(asked, freed+1)
		if wanted > i+1 { // another worker has requested the lock and is still waiting
			gap := us(max(0, holds[i+1].Acquired-freed))
			gaps = append(gaps, gap)
			if c.processOf(holds[i].Worker) != c.processOf(holds[i+1].Worker) {
				across = append(across, gap)
			}
		}
	}
	return gaps, across
}

// longestTurns returns the largest number of times that other workers got the lock while one worker
// waited. All holds must be of the same key, and sorted by acquire.
func longestTurns(holds []Hold) (longest int) {
	for i, h := range holds {
		had, _ := slices.BinarySearchFunc(holds, h.Asked, func(h Hold, asked time.Duration) int { return cmp.Compare(h.Acquired, asked) })
		longest = max(longest, i-had)
	}
	return longest
}

// selfRetake returns the fraction of acquires by the worker that had just released the lock.
func selfRetake(holds []Hold) float64 {
	n := 0
	for i := range len(holds) - 1 {
		if holds[i].Worker == holds[i+1].Worker {
			n++
		}
	}
	return float64(n) / float64(max(len(holds)-1, 1))
}

// jain returns the fairness index of Jain, Chiu and Hawe (1984). It is 1 if all n values are equal,
// and 1/n if only one value is not 0.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// violations counts how many times a worker got the lock while another worker still held it. It
// ignores pairs of workers that the lock need not keep apart.
func violations(holds []Hold, c Case, excludes catalog.Exclusion) int {
	type scope struct{ key, process int }
	free := map[scope]time.Duration{} // time of the latest release so far
	n := 0
	for _, h := range holds {
		s := scope{key: h.Key}
		if excludes == catalog.PerProcess {
			s.process = c.processOf(h.Worker)
		}
		if h.Acquired < free[s] {
			n++
		}
		free[s] = max(free[s], h.Released)
	}
	return n
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// percentile returns a percentile of sorted values. It uses the nearest-rank method, so the result
// is always one of the values.
func percentile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
