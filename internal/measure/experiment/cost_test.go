package experiment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"grablab/internal/measure/stat"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// stubCommand makes the test binary run as a service. It needs a separate process, because the CPU
// time of the service must not count.
const stubCommand = "stub"

func serveStub(context.Context, []string, io.Writer, io.Writer) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	answer := []byte(`{"outcome":"taken","order_id":17,"driver_id":4,"instance":"8004","strategy":"setnx","token":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","waited_ms":1.204,"held_ms":0.611}`)
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // exit if the parent process exits
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		w.Write(answer)
	})))
}

func startStub(b *testing.B) (url string) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe, stubCommand)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + line[:len(line)-1]
}

// BenchmarkCPU measures the CPU time of a request that our load sends and counts. It divides this
// time by that of a bare vegeta attack, which only encodes its results. Both run once in each
// round, and ratios are computed within a round. The limit is 1.15.
//
//	go test ./internal/measure/experiment -run '^$' -bench CPU -benchtime 1x
func BenchmarkCPU(b *testing.B) {
	const rounds, drivers, orders, rate = 21, 20, 100, 1000
	url := startStub(b)
	size := Load{Orders: orders, Drivers: drivers, Rate: rate, Timeout: 10 * time.Second, MaxWorkers: 10_000}

	ours := func() (requests int) {
		p := load.NewPlan([]string{url}, 1, orders, drivers, 1)
		t := newAccounting(drivers, nil, target.Own)
		enc := vegeta.NewEncoder(bufio.NewWriter(io.Discard))
		err := load.Attack(b.Context(), p, size, func(r *vegeta.Result, due time.Time) {
			if t.add(r, due) != nil || enc(r) != nil {
				b.Error("a result could not be counted")
			}
		})
		if err != nil || t.requests != orders*drivers {
			b.Fatalf("%d requests: %v", t.requests, err)
		}
		return t.requests
	}
	bare := func() (requests int) {
		target := vegeta.NewStaticTargeter(vegeta.Target{
			Method: http.MethodPost, URL: url + "/orders/17/grab", Body: []byte(`{"driver_id":4}`), Header: http.Header{"Content-Type": {"application/json"}},
		})
		enc := vegeta.NewEncoder(bufio.NewWriter(io.Discard))
		pace := vegeta.ConstantPacer{Freq: rate, Per: time.Second}
		for r := range vegeta.NewAttacker().Attack(target, pace, orders*drivers*time.Second/rate, "") {
			requests++ // on a busy machine, vegeta sends fewer requests, because it stops when its time is over
			if enc(r) != nil {
				b.Error("a result could not be encoded")
			}
		}
		if requests < orders*drivers/2 {
			b.Fatalf("only %d requests were sent, less than half of the plan", requests)
		}
		return requests
	}
	measure := func(fire func() (requests int)) float64 {
		before := cpuTime()
		requests := fire()
		return float64(cpuTime()-before) / float64(requests)
	}
	for b.Loop() {
		var a, v []float64
		for round := range rounds + 1 { // round 0 warms up
			x, y := measure(ours), measure(bare)
			if round > 0 {
				a, v = append(a, x), append(v, y)
			}
		}
		ratio := stat.Ratio(a, v)
		b.ReportMetric(stat.Median(a).Median/1000, "ours-us/req")
		b.ReportMetric(stat.Median(v).Median/1000, "bare-us/req")
		b.ReportMetric(ratio.Median, "ours/bare")
		b.Logf("CPU time of a request, ours/bare vegeta: %.3f, median of %d rounds with its 95 %% interval", ratio, rounds)
		if ratio.Low > 1.15 {
			b.Errorf("a request needs more than 1.15 times the CPU time of bare vegeta")
		}
	}
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // cannot fail for a running process
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
