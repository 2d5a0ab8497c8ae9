package lockbench

import (
	"cmp"
	"math"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// Figures are what is known of a slice, and, as medians over its slices, of a row of
// the result. nil: the figure means nothing there, or could not be counted.
type Figures struct {
	Strategy     string   `json:"strategy"`
	Case         string   `json:"case"`
	Acquisitions int      `json:"acquisitions"`
	OpsPerS      float64  `json:"ops_per_s"` // acquisitions of all workers together
	P50US        float64  `json:"p50_us"`    // of an acquire and its release, without the time between them
	P99US        float64  `json:"p99_us"`
	GapP50US     *float64 `json:"handoff_gap_p50_us"` // from a release call to the next acquire's return, while a worker waited
	GapP99US     *float64 `json:"handoff_gap_p99_us"`
	GapMeanUS    *float64 `json:"handoff_gap_mean_us"`
	GapCrossUS   *float64 `json:"handoff_gap_across_p50_us"` // of those from one process to another
	SentPerOp    *float64 `json:"commands_per_op"`           // commands or statements that clients sent
	InsidePerOp  *float64 `json:"script_commands_per_op"`    // commands that scripts ran inside of Redis
	Jain         *float64 `json:"jain"`                      // fairness over the workers: 1 if all got the same
	SelfRetake   *float64 `json:"self_retake"`               // share of acquisitions by the worker that had just released
	Violations   *int     `json:"violations"`                // holders that came in while another was inside
}

// Slice is what was measured of one subject in one case and one round.
type Slice struct {
	Figures
	Round      int     `json:"round"`
	Seconds    float64 `json:"seconds"`
	GaveUp     int     `json:"gave_up"`
	WaitP999MS float64 `json:"wait_p999_ms"`
	LongestMS  float64 `json:"longest_wait_ms"`
	Turns      *int    `json:"longest_wait_turns"` // how many others had the lock meanwhile

	waits []float64 // ms, of every acquisition
}

// measure turns what the workers of a subject did into figures.
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
	if subject.Needs&(lock.ZooKeeper|lock.Etcd) == 0 { // whose clients are not counted
		ops := float64(len(holds))
		s.SentPerOp = new(float64(t.sent) / ops)
		if t.ranKnown && subject.Needs&(lock.Redis|lock.RedisQuorum) != 0 {
			s.InsidePerOp = new(max(0, float64(t.ran)-float64(t.sent)) / ops)
		}
	}
	return s
}

// handoffGaps are the times, in µs, from a release call to the return of the next
// acquire, for those releases at which a worker was waiting; across: those of them
// where the next holder is in another process. All holds are of one key, in the order of
// their acquires.
func handoffGaps(holds []Hold, c Case) (gaps, across []float64) {
	asked := make([]time.Duration, len(holds))
	for i, h := range holds {
		asked[i] = h.Asked
	}
	slices.Sort(asked)
	for i := range len(holds) - 1 {
		freed := holds[i].Released
		wanted, _ := slices.BinarySearch(asked, freed+1)
		if wanted > i+1 { // more have asked for it than have had it
			gap := us(max(0, holds[i+1].Acquired-freed))
			gaps = append(gaps, gap)
			if c.processOf(holds[i].Worker) != c.processOf(holds[i+1].Worker) {
				across = append(across, gap)
			}
		}
	}
	return gaps, across
}

// longestTurns is how often the lock was acquired, at the most, between an ask for it and
// its acquire. All holds are of one key, in the order of their acquires.
func longestTurns(holds []Hold) (longest int) {
	for i, h := range holds {
		had, _ := slices.BinarySearchFunc(holds, h.Asked, func(h Hold, asked time.Duration) int { return cmp.Compare(h.Acquired, asked) })
		longest = max(longest, i-had)
	}
	return longest
}

// selfRetake is the share of acquisitions by the worker that had just released.
func selfRetake(holds []Hold) float64 {
	n := 0
	for i := range len(holds) - 1 {
		if holds[i].Worker == holds[i+1].Worker {
			n++
		}
	}
	return float64(n) / float64(max(len(holds)-1, 1))
}

// jain is the fairness index of Jain, Chiu and Hawe (1984): 1 if all have the
// same, 1/n if one of n has all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// violations counts the holders that came in while another was inside: another
// of the same process, if the lock excludes only those. A hold begins when the
// acquire has returned and ends when the release is called, so that every
// violation that is counted is certain.
func violations(holds []Hold, c Case, excludes catalog.Exclusion) int {
	type scope struct{ key, process int }
	free := map[scope]time.Duration{} // the latest release so far
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

// percentile of sorted values, by nearest rank.
func percentile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
