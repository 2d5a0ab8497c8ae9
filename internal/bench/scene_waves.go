package bench

import (
	"context"
	"sync"
	"time"
)

// waves is a salvo that is not known beforehand: each wave of it is sent, all at
// once, when somebody says so.
type waves struct {
	began time.Time

	mu     sync.Mutex
	shots  []shot
	sent   []time.Duration // since began, by shot
	next   int
	over   bool
	change chan struct{} // closes at the next wave, and at the end
}

func newWaves() *waves { return &waves{began: time.Now(), change: make(chan struct{})} }

// send lets go the next wave.
func (w *waves) send(shots []shot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.began)
	for _, s := range shots {
		w.shots, w.sent = append(w.shots, s), append(w.sent, now)
	}
	w.changed()
}

// end says that no wave comes any more.
func (w *waves) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.changed()
}

func (w *waves) changed() {
	close(w.change)
	w.change = make(chan struct{})
}

func (w *waves) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.shots)
}

func (w *waves) shoot() (shot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == len(w.shots) {
		return shot{}, false
	}
	w.next++
	return w.shots[w.next-1], true
}

func (w *waves) schedule(ctx context.Context, _ Load, _ *alarm) schedule { return wavePacer{w, ctx} }

type wavePacer struct {
	*waves
	ctx context.Context
}

// Pace waits for the wave of the request that is next.
func (p wavePacer) Pace(_ time.Duration, hits uint64) (time.Duration, bool) {
	for {
		p.mu.Lock()
		ready, over, change := hits < uint64(len(p.shots)), p.over, p.change
		p.mu.Unlock()
		switch {
		case p.ctx.Err() != nil:
			return 0, true
		case ready:
			return 0, false
		case over:
			return 0, true
		}
		select {
		case <-change:
		case <-p.ctx.Done():
		}
	}
}

// Rate is none: a wave is sent all at once.
func (p wavePacer) Rate(time.Duration) float64 { return 0 }

func (p wavePacer) due(n uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[n]
}
