package diagram_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/history"
	"grablab/internal/present/diagram"
)

// record parses events from lines such as "8004 1 acquire ok 3 lease=1000". The fields are
// instance, driver, operation, kind and time in ms.
func record(t *testing.T, lines ...string) (events []history.Event) {
	t.Helper()
	for i, line := range lines {
		e := history.Event{Seq: uint64(i + 1), Order: 7, Incarnation: 1}
		var ms float64
		fields := strings.Fields(line)
		if _, err := fmt.Sscan(strings.Join(fields[:5], " "), &e.Instance, &e.Driver, &e.Op, &e.Kind, &ms); err != nil {
			t.Fatalf("cannot parse the line %s: %v", line, err)
		}
		e.T = 5*time.Hour + time.Duration(ms*float64(time.Millisecond))
		for _, f := range fields[5:] {
			switch key, value, _ := strings.Cut(f, "="); key {
			case "lease":
				d, err := time.ParseDuration(value)
				if err != nil {
					t.Fatal(err)
				}
				e.Lease = d
			case "fence":
				if _, err := fmt.Sscan(value, &e.Fence); err != nil {
					t.Fatal(err)
				}
			case "endless":
				e.Lease = history.Endless
			case "code":
				e.Code = history.Code(value)
			case "token":
				e.Token = value
			case "restarted":
				e.Incarnation = 2
			}
		}
		events = append(events, e)
	}
	return events
}

// text returns the spans and marks of a row in a short form for comparison.
func text(d diagram.Diagram, row string) (all []string) {
	add := func(spans []diagram.Span) {
		for _, s := range spans {
			line := fmt.Sprintf("%s %v-%v", s.Kind, s.From, s.To)
			if s.Open {
				line += " open"
			}
			all = append(all, line)
		}
	}
	for _, l := range d.Lanes {
		for _, r := range l.Rows {
			if r.Name != row {
				continue
			}
			add(r.Spans)
			for _, m := range r.Marks {
				all = append(all, fmt.Sprintf("%s %v", m.Kind, m.At))
			}
		}
	}
	return all
}

// pausedHolder is a history of failure mode F11: the lease of driver 1 expires while its process is paused.
var pausedHolder = []string{
	"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2 lease=1s", "8004 1 read ok 3", "8004 1 strike info 4",
	"8005 2 grab invoke 10", "8005 2 acquire invoke 11", "8005 2 acquire ok 1003 lease=1s", "8005 2 read ok 1004",
	"8005 2 claim invoke 1005", "8005 2 claim ok 1006", "8005 2 release invoke 1007", "8005 2 release ok 1008", "8005 2 grab ok 1009",
	"8004 1 strike ok 1500", "8004 1 claim invoke 1501", "8004 1 claim ok 1502", "8004 1 release invoke 1503", "8004 1 release fail 1504 code=lease_lost",
	"8004 1 grab ok 1505", "8005 1000000000 grab invoke 1600", "8005 1000000000 grab fail 1601 code=taken",
}

func TestOfRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  catalog.Fault
		locks  catalog.Exclusion
		events []string
		rows   []check.Row
		row    string
		want   []string
	}{
		{"a paused holder", catalog.Pause, catalog.Global, pausedHolder, nil, "driver 1", []string{
			"waits 1-2", "holds 2-1002", "fault 4-1500", "believes 2-1503", "gap 1002-1503",
			"read 3", "leaseend 1002", "sent 1501", "second 1502", "late 1504",
		}},
		{"who came meanwhile", catalog.Pause, catalog.Global, pausedHolder, nil, "driver 2", []string{
			"waits 11-1003", "believes 1003-1007", "holds 1003-1008", "read 1004", "sent 1005", "won 1006", "released 1008",
		}},
		{"a lease and a fault end at a time that is not known", catalog.Slow, catalog.Global, []string{
			"8004 1 acquire invoke 0", "8004 1 acquire ok 2", "8004 1 strike info 4", "8005 2 acquire invoke 5", "8005 2 acquire ok 900", "8004 1 claim invoke 1000", "8004 1 release invoke 1003",
		}, nil, "driver 1", []string{
			"waits 0-2", "holds 2-900 open", "believes 2-1003", "gap 900-1003", "fault 4-1003 open", "sent 1000",
		}},
		{"a lease that is not known to end", "", catalog.Global, []string{
			"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2", "8004 1 read ok 10",
		}, nil, "driver 1", []string{"waits 1-2", "holds 2-10 open", "believes 2-10 open", "read 10"}},
		{"a lock without an end, and its holder dies", catalog.Crash, catalog.Global, []string{
			"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2 endless", "8004 1 strike info 3", "8004 5 grab invoke 900 restarted", "8004 5 acquire invoke 901 restarted",
		}, nil, "driver 1", []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "dead 3-900 open", "holds 2-901 open", "dies 3",
		}},
		{"a renewal moves the end", "", catalog.Global, []string{
			"8004 1 grab invoke 0", "8004 1 acquire invoke 0", "8004 1 acquire ok 1 lease=300ms", "8004 1 renew ok 101 lease=300ms",
			"8004 1 lost info 401", "8004 1 claim fail 450 code=lease_lost", "8004 1 release invoke 460",
		}, nil, "driver 1", []string{
			"waits 0-1", "believes 1-401", "holds 1-401", "renewed 101", "loss 401", "failed 450", "leaseend 401",
		}},
		{"no lock", "", catalog.NoExclusion, []string{
			"8004 1 acquire ok 0 endless", "8004 1 read ok 1", "8004 1 claim invoke 2", "8004 1 claim fail 3 code=taken", "8004 1 release invoke 4",
		}, nil, "driver 1", []string{"inside 0-4", "read 1", "sent 2", "refused 3"}},
		{"no answer to a write that is in the ledger", "", catalog.NoExclusion, []string{
			"8004 1 acquire ok 0", "8004 1 claim invoke 2 token=a", "8004 1 claim info 3 token=a", "8004 1 release invoke 4",
		}, []check.Row{{Driver: 1, Instance: "8004", Token: "a"}}, "driver 1", []string{"inside 0-4", "sent 2", "won 3"}},
		{"no answer to a write, and no row", "", catalog.NoExclusion, []string{
			"8004 1 acquire ok 0", "8004 1 claim invoke 2 token=a", "8004 1 claim info 3 token=a", "8004 1 release invoke 4",
		}, nil, "driver 1", []string{"inside 0-4", "sent 2", "unknown 3"}},
		{"to the end of the record", "", catalog.Global, []string{
			"8004 1 acquire ok 0 lease=100ms", "8005 2 read ok 150",
		}, nil, "driver 1", []string{"holds 0-100", "believes 0-150 open", "gap 100-150 open", "leaseend 100"}},
		{"a driver that gets no lock", "", catalog.Global, []string{"8004 1 acquire invoke 1", "8004 1 acquire fail 9 code=busy", "8004 2 acquire ok 10", "8004 2 claim fail 20"}, nil, "driver 1", []string{"waits 0-8", "denied 8"}},
		{"a strike of a renewal, while its grab goes on", catalog.Slow, catalog.Global, []string{
			"8004 1 acquire ok 0 lease=100ms", "8004 1 strike info 30", "8004 1 claim invoke 40", "8004 1 strike ok 90", "8004 1 release invoke 95",
		}, nil, "driver 1", []string{"fault 30-90", "believes 0-95", "holds 0-95 open", "sent 40"}},
		{"a mutex keeps apart within its process alone", "", catalog.PerProcess, []string{
			"8004 1 acquire ok 0 endless", "8005 2 acquire ok 1 endless", "8004 1 release invoke 4", "8004 1 release ok 5",
		}, nil, "driver 1", []string{"believes 0-4", "holds 0-5", "released 5"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := diagram.OfRun(diagram.Run{Fault: tt.fault, Excludes: tt.locks, Timeline: check.Timeline{Property: catalog.OneWinner, Events: record(t, tt.events...), Rows: tt.rows}})
			if got := text(d, tt.row); !slices.Equal(got, tt.want) {
				t.Errorf("row is  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestDeaths checks how a diagram shows the locks of dead processes.
func TestDeaths(t *testing.T) {
	ms := func(n int) time.Duration { return 5*time.Hour + time.Duration(n)*time.Millisecond }
	endless := []string{"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2 endless token=a", "8004 1 strike info 3", "8005 2 grab invoke 50", "8005 2 acquire invoke 51"}
	leased := []string{"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2 lease=1s token=a", "8005 2 acquire invoke 51"}
	anew := []diagram.Death{{Instance: "8004", At: ms(900)}}
	for _, tt := range []struct {
		name string
		run  diagram.Run
		want []string
	}{
		{"a key without an end", diagram.Run{Outlives: true, Deaths: anew, Until: ms(2000), Timeline: check.Timeline{Events: record(t, endless...)}}, []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "holds 2-3", "dead 3-900 open", "kept 3-2000 open", "dies 3",
		}},
		{"one that another has got", diagram.Run{Outlives: true, Deaths: anew, Timeline: check.Timeline{Events: record(t, append(endless[:4:4], "8005 2 acquire ok 1500 endless token=b")...)}}, []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "holds 2-3", "dead 3-900 open", "kept 3-1500 open", "dies 3",
		}},
		{"one that the same driver has got again", diagram.Run{Outlives: true, Deaths: anew, Timeline: check.Timeline{Events: record(t, append(endless[:4:4], "8004 1 acquire ok 1500 endless token=b restarted", "8004 1 read ok 1600 restarted")...)}}, []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "holds 2-3", "dead 3-900 open", "kept 3-1500 open", "holds 1500-1600 open", "believes 1500-1600 open", "dies 3", "read 1600",
		}},
		{"one that is not on a server", diagram.Run{Deaths: anew, Until: ms(2000), Timeline: check.Timeline{Events: record(t, endless...)}}, []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "dead 3-900 open", "holds 2-2000 open", "dies 3",
		}},
		{"a mutex, which goes with its process", diagram.Run{Excludes: catalog.PerProcess, Deaths: anew, Until: ms(2000), Timeline: check.Timeline{Events: record(t, endless...)}}, []string{
			"waits 1-2", "fault 3-3", "believes 2-3", "holds 2-3", "dead 3-900 open", "dies 3",
		}},
		{"a key that runs out", diagram.Run{Outlives: true, Deaths: anew, Until: ms(2000), Timeline: check.Timeline{Events: record(t, leased...)}}, []string{
			"waits 1-2", "believes 2-2", "holds 2-2", "dead 2-900 open", "kept 2-1002", "dies 2", "leaseend 1002",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.run.Excludes == "" {
				tt.run.Excludes = catalog.Global
			}
			if got := text(diagram.OfRun(tt.run), "driver 1"); !slices.Equal(got, tt.want) {
				t.Errorf("row is  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestFurtherEvents checks that a note states how many events are not drawn.
func TestFurtherEvents(t *testing.T) {
	d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Events: record(t, pausedHolder...), Further: 3}})
	if want := "not drawn: 3 more events of this order"; !slices.Contains(d.Notes, want) {
		t.Errorf("notes %q, want %q", d.Notes, want)
	}
}

func TestLost(t *testing.T) {
	d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Property: catalog.OneWinner, Events: record(t, pausedHolder...)}})
	if d.Lost == nil || *d.Lost != 1502 || d.End != 1505 {
		t.Errorf("lost at %v of %v, want 1502 of 1505", d.Lost, d.End)
	}
}

// TestUnits checks that an order with several units counts as oversold only from the first ledger row for
// which there is no unit.
func TestUnits(t *testing.T) {
	events := record(t,
		"8004 1 claim invoke 0", "8004 1 claim ok 1", "8005 2 claim invoke 2", "8005 2 claim ok 3",
		"8004 3 claim invoke 4", "8004 3 claim ok 5", "8005 4 claim invoke 6", "8005 4 claim ok 7")
	for _, tt := range []struct {
		units int
		lost  float64 // -1 if the property holds
		want  [4]diagram.MarkKind
	}{
		{0, 3, [4]diagram.MarkKind{diagram.Won, diagram.Second, diagram.Second, diagram.Second}},
		{1, 3, [4]diagram.MarkKind{diagram.Won, diagram.Second, diagram.Second, diagram.Second}},
		{3, 7, [4]diagram.MarkKind{diagram.Won, diagram.Won, diagram.Won, diagram.Second}},
		{4, -1, [4]diagram.MarkKind{diagram.Won, diagram.Won, diagram.Won, diagram.Won}},
	} {
		d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Property: catalog.OneWinner, Events: events, Units: tt.units}})
		lost := -1.0
		if d.Lost != nil {
			lost = *d.Lost
		}
		if lost != tt.lost {
			t.Errorf("%d units: lost at %v, want %v", tt.units, lost, tt.lost)
		}
		for i, want := range tt.want {
			written := text(d, fmt.Sprintf("driver %d", i+1))
			if want := fmt.Sprintf("%s %d", want, 2*i+1); !slices.Contains(written, want) {
				t.Errorf("%d units: driver %d has %q, want %s", tt.units, i+1, written, want)
			}
		}
	}
}

// TestManyDrivers checks that a lane with more drivers than rows includes a driver with an important event,
// and counts the drivers that it omits.
func TestManyDrivers(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("8004 %d acquire invoke %d", i+1, i), fmt.Sprintf("8004 %d acquire fail %d code=busy", i+1, i+100))
	}
	lines = append(lines, "8004 41 acquire ok 150 lease=1s", "8004 41 claim ok 151")
	d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Events: record(t, lines...)}})
	if len(d.Lanes) != 1 || len(d.Lanes[0].Rows) != 10 || d.Lanes[0].Further != 31 {
		t.Fatalf("the diagram should have one lane with 10 rows and 31 further drivers, but has %+v", d.Lanes)
	}
	if d.Lanes[0].Rows[0].Name != "driver 1" || d.Lanes[0].Rows[9].Name != "driver 41" {
		t.Errorf("rows from %s to %s", d.Lanes[0].Rows[0].Name, d.Lanes[0].Rows[9].Name)
	}
}

func TestOfSchedule(t *testing.T) {
	s, err := schedule.Parse(`strategy setnx
actors A@1 B@2
nodes redis
ttl 3s

A begins
A acquire 1 redis
A read 1 db
A paused
time to lease end
B begins
B acquire 1 redis
B read 1 db
B claim 1 db
A resumes
A claim 1 db
`)
	if err != nil {
		t.Fatal(err)
	}
	believes := [][]string{nil, {"A"}, {"A"}, {"A"}, {"A"}, {"A"}, {"A", "B"}, {"A", "B"}, {"A", "B"}, {"A", "B"}, {"A", "B"}}
	holds := [][]string{nil, {"A"}, {"A"}, {"A"}, nil, nil, {"B"}, {"B"}, {"B"}, {"B"}, {"B"}}
	var moments []explore.Moment
	for i, step := range s.Steps {
		m := explore.Moment{Step: step, Believes: believes[i], Holds: holds[i], Broken: i == 10}
		if i >= 8 {
			m.Winners = append(m.Winners, "B")
		}
		if i >= 10 {
			m.Winners = append(m.Winners, "A")
		}
		moments = append(moments, m)
	}
	d := diagram.OfSchedule("F11", s.Actors, 0, moments, func(m explore.Moment) string { return m.Step.String() })
	for row, want := range map[string][]string{
		"A": {"holds 1.5-4.5", "believes 1.5-11 open", "gap 4.5-11 open", "waits 0.5-1.5", "fault 3.5-9.5", "call 1.5", "read 2.5", "second 10.5"},
		"B": {"holds 6.5-11 open", "believes 6.5-11 open", "waits 5.5-6.5", "call 6.5", "read 7.5", "won 8.5"},
	} {
		if got := text(d, row); !slices.Equal(got, want) {
			t.Errorf("row %s: got  %q\nwant %q", row, got, want)
		}
	}
	if len(d.Notes) != 0 {
		t.Errorf("no steps follow the failure, but the notes are %q", d.Notes)
	}
	const why = "A was paused at step 4; its lease ran out at step 5; B got the lock at step 7; B won at step 9; A wrote at step 11 without noticing."
	if d.Cause["en"] != why {
		t.Errorf("the cause is %+v, want %q", d.Cause, why)
	}
	for i := range moments[5:] { // change the schedule: A is dead, and its key stays on the server
		moments[i+5].Kept = []string{"A"}
	}
	if got := text(diagram.OfSchedule("F4", s.Actors, 0, moments, func(m explore.Moment) string { return m.Step.String() }), "A"); !slices.Contains(got, "kept 5.5-11 open") {
		t.Errorf("the key of a dead actor is drawn as %q", got)
	}
	ofTwo := diagram.OfSchedule("F11", s.Actors, 2, moments, func(m explore.Moment) string { return m.Step.String() })
	if got := text(ofTwo, "A"); !slices.Contains(got, "won 10.5") {
		t.Errorf("of two units, the second row is drawn as %q", got)
	}
	if d.Lost == nil || *d.Lost != 10.5 || len(d.Bands) != 1 || d.Bands[0].Kind != diagram.Passes {
		t.Errorf("lost %v, bands %+v", d.Lost, d.Bands)
	}
}

// FuzzOfRun checks that OfRun accepts any record, and that the diagram can be encoded as JSON.
func FuzzOfRun(f *testing.F) {
	f.Add([]byte(`[{"t_ns":1,"kind":"ok","op":"acquire","lease_ns":-1},{"t_ns":9,"kind":"ok","op":"claim"}]`), "pause")
	f.Add([]byte(`[{"t_ns":9223372036854775807,"op":"strike"},{"t_ns":-9223372036854775808,"op":"renew","lease_ns":9223372036854775807}]`), "")
	f.Fuzz(func(t *testing.T, text []byte, fault string) {
		var events []history.Event
		if json.Unmarshal(text, &events) != nil {
			return
		}
		d := diagram.OfRun(diagram.Run{Fault: catalog.Fault(fault), Excludes: catalog.Global, Timeline: check.Timeline{Property: catalog.OneWinner, Events: events, Steps: []check.Step{{TMS: 3}}}})
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDrawingShowsTheBeginningOfARead checks that a drawing shows both the beginning of a read and the arrival of its answer.
// Otherwise, a driver that is paused in between seems to read after the pause.
func TestDrawingShowsTheBeginningOfARead(t *testing.T) {
	d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Events: record(t,
		"8004 1 grab invoke 0", "8004 1 acquire invoke 0", "8004 1 acquire ok 1 lease=1s",
		"8004 1 read invoke 2", "8005 2 claim ok 1200", "8004 1 read ok 1500", "8004 1 claim ok 1502")}})
	got := text(d, "driver 1")
	begin := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "sent 2") })
	end := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "read 1500") })
	if begin < 0 || end < 0 {
		t.Errorf("the row has %q, want the begin of the read at 2 and its answer at 1500", got)
	}
}

// TestReadSaysWhatItRead checks that the mark of a read names the value in the record. It must not depend on
// what other drivers had written by then.
func TestReadSaysWhatItRead(t *testing.T) {
	for code, want := range map[string]string{
		" code=open": "open", " code=taken": "taken", "": "",
	} {
		d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Events: record(t, "8004 1 claim ok 1", "8005 2 read ok 2"+code)}})
		if got := d.Lanes[1].Rows[0].Marks[0]; got.Kind != diagram.Read || got.Text != want {
			t.Errorf("read ok%s is drawn as %+v, want %q", code, got, want)
		}
	}
}

// TestStepsUseTheTimesOfTheDrawing checks that a step is at the position of its event. Its time must be on
// the scale of the drawing, which begins before the first step.
func TestStepsUseTheTimesOfTheDrawing(t *testing.T) {
	events := record(t, "8004 1 acquire invoke 0.0004", "8004 1 acquire ok 3.0010", "8005 2 acquire ok 1016.0019")
	d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Events: events, Begins: events[1].T, Steps: []check.Step{{TMS: 0}, {TMS: 1013.0}}}})
	for i, want := range []struct {
		at    float64
		clock string
	}{{3.001, "3.00 ms"}, {1016.002, "1,016.0 ms"}} {
		if s := d.Steps[i]; s.At != want.at || s.Clock != want.clock {
			t.Errorf("step %d is at %v with %q, want %v with %q", i+1, s.At, s.Clock, want.at, want.clock)
		}
	}
}

// TestOfScheduleShowsOnlyWhatWorked checks that the release or renewal of a lost lock has a different mark.
// It also checks that a strategy without a lock has no bar for a lock.
func TestOfScheduleShowsOnlyWhatWorked(t *testing.T) {
	for _, tt := range []struct {
		name, steps     string
		believes, holds string // for each step, the actor that believes that it holds the lock, or holds it
		want            []string
	}{
		{"a release and a renewal that work", "A acquire 1 redis,A renew 1 redis,A claim 1 db,A release 1 redis", "A A A -", "A A A -", []string{
			"holds 0.5-3.5", "believes 0.5-3.5", "call 0.5", "renewed 1.5", "refused 2.5", "released 3.5"}},
		{"a release and a renewal of a lock that was lost", "A acquire 1 redis,time to lease end,A renew 1 redis,A release 1 redis,A release 2 redis", "A A A - -", "A - - - -", []string{
			"holds 0.5-1.5", "believes 0.5-3.5", "gap 1.5-3.5", "call 0.5", "late 2.5", "late 3.5", "late 4.5"}},
		{"a release of several calls", "A acquire 1 redis,A release 1 redis,A release 2 redis", "A - -", "A - -", []string{
			"holds 0.5-1.5", "believes 0.5-1.5", "call 0.5", "released 1.5", "released 2.5"}},
		{"no lock", "A begins,A read 1 db,A claim 1 db,B begins", "- - - -", "- - - -", []string{"inside 0.5-2.5", "read 1.5", "refused 2.5"}},
	} {
		s, err := schedule.Parse("strategy setnx\nactors A@1 B@2\nnodes redis\nttl 3s\n\n" + strings.ReplaceAll(tt.steps, ",", "\n") + "\n")
		if err != nil {
			t.Fatal(err)
		}
		var moments []explore.Moment
		believes, holds := strings.Fields(tt.believes), strings.Fields(tt.holds)
		for i, step := range s.Steps {
			moments = append(moments, explore.Moment{Step: step, Believes: actors(believes[i]), Holds: actors(holds[i])})
		}
		d := diagram.OfSchedule("", s.Actors, 0, moments, func(m explore.Moment) string { return m.Step.String() })
		if got := text(d, "A"); !slices.Equal(got, tt.want) {
			t.Errorf("row of A, %s: got  %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func actors(name string) []string {
	if name == "-" {
		return nil
	}
	return []string{name}
}

// TestBands checks when the band of a fault ends: at the step that ends the same fault of the same server
// and instance. A skipped step ends nothing, and a fault without an end lasts until the last step.
func TestBands(t *testing.T) {
	for steps, want := range map[string][]string{
		"redlock-1 down,redlock-1 up":                                                                                   {"fault 0.5-1.5"},
		"redlock-1 down,A begins":                                                                                       {"fault 0.5-2 open"},
		"redlock-1 down,redlock-2 down,redlock-2 up,redlock-1 up":                                                       {"fault 0.5-3.5", "fault 1.5-2.5"},
		"redlock-1 down,redlock-1 up,redlock-1 down,redlock-1 up":                                                       {"fault 0.5-1.5", "fault 2.5-3.5"},
		"redlock-1 down,redlock-1 up (skipped),A begins,redlock-1 up":                                                   {"fault 0.5-3.5"},
		"redlock-1 down (skipped),redlock-1 up":                                                                         nil,
		"instance 1 cut off from locks,instance 1 reaches locks":                                                        {"fault 0.5-1.5"},
		"instance 1 cut off from db,instance 1 reaches locks":                                                           {"fault 0.5-2 open"},
		"instance 1 cut off from locks,instance 2 reaches locks":                                                        {"fault 0.5-2 open"},
		"instance 1 cut off from locks,instance 2 cut off from locks,instance 2 reaches locks,instance 1 reaches locks": {"fault 0.5-3.5", "fault 1.5-2.5"},
	} {
		s, err := schedule.Parse("strategy redlock\nactors A@1 B@2\nnodes redlock-1 redlock-2 redlock-3\nttl 3s\n\n" + strings.NewReplacer(",", "\n", " (skipped)", "").Replace(steps) + "\n")
		if err != nil {
			t.Fatalf("Parse(%s): %v", steps, err)
		}
		var moments []explore.Moment
		for i, text := range strings.Split(steps, ",") {
			moments = append(moments, explore.Moment{Step: s.Steps[i], Skipped: strings.HasSuffix(text, " (skipped)")})
		}
		var got []string
		for _, b := range diagram.OfSchedule("", s.Actors, 0, moments, func(m explore.Moment) string { return m.Step.String() }).Bands {
			got = append(got, fmt.Sprintf("%s %v-%v", b.Kind, b.From, b.To)+map[bool]string{true: " open"}[b.Open])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the bands are %q, want %q", steps, got, want)
		}
	}
}
