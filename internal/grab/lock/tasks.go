package lock

import "sync"

// tasks counts functions that run in the background. Unlike a sync.WaitGroup, it allows Go during Wait,
// because clients may still ask for a lock while another goroutine closes the locker. The zero value is
// ready to use.
type tasks struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when no function is running any more; nil before the first one
}

// Go runs f in the background.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	if t.running == 0 {
		t.idle = make(chan struct{})
	}
	t.running++
	t.mu.Unlock()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 {
		close(t.idle)
	}
}

// Wait waits until no function is running.
func (t *tasks) Wait() {
	for {
		t.mu.Lock()
		running, idle := t.running, t.idle
		t.mu.Unlock()
		if running == 0 {
			return
		}
		<-idle
	}
}
