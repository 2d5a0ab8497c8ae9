package workshop

import (
	"math/rand/v2"
	"strconv"
)

// figure returns a function that stores a random number from low to high under a name, so that each
// user gets a different value.
func figure(name string, low, high int) func(*rand.Rand, Facts) {
	return func(r *rand.Rand, f Facts) { f[name] = strconv.Itoa(low + r.IntN(high-low+1)) }
}

// ownBounds contains the flags for a search for mistakes in the user's own lock.
const ownBounds = "-actors 3 -faults slow,pause,crash,cancel -everything -seconds 40 " +
	"-property one-winner,lease-exclusive,stale-write,fence,stuck,release-effective"

// Exercises lists the twelve exercises in order.
var Exercises = []Exercise{
	{
		Number: 1, Minutes: 4, Options: "abcd", Right: "d", Draw: figure("drivers", 8, 18), Hints: 1,
		Show:      []Step{step("-scenario article -strategies none -seed {seed}", cell("shown", "none", "none"))},
		Questions: []Question{{Points: 2, judge: count("check.double", mistake{"drivers", "winners"}, mistake{"0", "checked"}, mistake{"1", "pair"})}},
		Check: []Step{step("-scenario article -strategies none -drivers {drivers} -seed {seed}",
			cell("check", "none", "none"))},
	},
	{
		Number: 2, Minutes: 6, Options: "abcd", Right: "b", Draw: figure("instances", 3, 5), Hints: 1,
		Show: []Step{
			step("-scenario article -strategies mutex -instances 1 -seed {seed}", cell("one", "mutex", "none")),
			step("-scenario article -strategies mutex -seed {seed}", cell("two", "mutex", "none")),
		},
		Questions: []Question{
			{Points: 1, judge: count("check.grabs", mistake{"1", "lock"}, mistake{"2", "pair"}, mistake{"20", "useless"})},
			{Points: 1, Choices: yesNo, judge: provesNothing},
		},
		Check: []Step{step("-scenario article -strategies mutex -instances {instances} -seed {seed}",
			cell("check", "mutex", "none"))},
	},
	{
		Number: 3, Minutes: 5, Options: "abcd", Right: "c", Draw: figure("ttl", 2, 4), Hints: 1,
		Show: []Step{
			step("-strategies setnx-nottl,setnx -faults crash -seed {seed}",
				cell("nottl", "setnx-nottl", "crash"), cell("shown", "setnx", "crash")),
		},
		Questions: []Question{{Points: 2, judge: longestWait}},
		Check: []Step{
			step("-strategies setnx -faults crash -ttl {ttl}s -wait 10s -seed {seed}", cell("check", "setnx", "crash")),
		},
	},
	{
		Number: 4, Minutes: 5, Options: "abcd", Right: "b", Hints: 1,
		Show: []Step{step("explore -strategies setnx-expire,setnx -faults crash -property stuck",
			search("expire", "setnx-expire"), search("setnx", "setnx"))},
		Questions: []Question{{Points: 2, File: true, Edits: "expire.schedule", judge: oneLineMore}},
		Check:     []Step{step("explore -replay {file}", replayed)},
	},
	{
		Number: 5, Minutes: 6, Options: "abcd", Right: "c", Hints: 1,
		Show: []Step{
			step("explore -strategies setnx-del -property lease-exclusive -faults slow -actors 2", search("two", "setnx-del")),
			step("explore -strategies setnx-del -property lease-exclusive -faults slow -actors 3", search("three", "setnx-del")),
		},
		Questions: []Question{{Points: 2, judge: count("three.steps", mistake{"three.released", "deleted"}, mistake{"5", "second"})}},
	},
	{
		Number: 6, Minutes: 8, Options: "abcd", Right: "c", Hints: 1,
		Show: []Step{
			step("explore -strategies setnx-getdel,setnx,setnx-watch -actors 3 -faults pause -property lease-exclusive",
				search("getdel", "setnx-getdel"), search("setnx", "setnx"), search("watch", "setnx-watch")),
			step("-strategies setnx-getdel -seed {seed}", cell("load", "setnx-getdel", "none")),
		},
		Questions: []Question{{Points: 2, judge: count("getdel.before", mistake{"getdel.paused", "itself"}, mistake{"getdel.asked", "asked"}, mistake{"getdel.released", "deleted"})}},
	},
	{
		Number: 7, Minutes: 7, Options: "abcd", Right: "c", Hints: 1,
		Show: []Step{
			step(clocks+" -strategies setnx-getset,setnx -clock-offset 200ms",
				cell("near", "setnx-getset", "none"), cell("near.setnx", "setnx", "none")),
			step(clocks+" -strategies setnx-getset,setnx -clock-offset 600ms",
				cell("far", "setnx-getset", "none"), cell("far.setnx", "setnx", "none")),
			step("-strategies setnx-getset-seconds,setnx-getset -ttl 1s -work 600ms -orders 10 -drivers 10 -rate 200 -seed {seed}",
				cell("seconds", "setnx-getset-seconds", "none"), cell("ms", "setnx-getset", "none")),
		},
		Questions: []Question{{Points: 2, Aim: around, judge: smallestOffset}},
		Check: []Step{
			step(clocks+" -strategies setnx-getset -clock-offset {below}ms", cell("below", "setnx-getset", "none")),
			step(clocks+" -strategies setnx-getset -clock-offset {above}ms", cell("above", "setnx-getset", "none")),
		},
	},
	{
		Number: 8, Minutes: 8, Options: "abcd", Right: "c", Hints: 1,
		Show: []Step{
			step("explore -strategies watchdog -faults pause -property one-winner", search("search", "watchdog")),
			step("-strategies watchdog -faults pause -seed {seed}", cell("paused", "watchdog", "pause")),
			step("explore -replay {search.file}", rows("replayed")),
		},
		Questions: []Question{{Points: 1, Choices: pointsOfGrab, judge: whereStopped}, {Points: 1, judge: count("check.rows", mistake{"2", "same"}, mistake{"0", "nobody"})}},
		Check:     []Step{step("explore -replay {search.file} -strategies watchdog-fenced", rows("check"))},
	},
	{
		Number: 9, Minutes: 8, Options: "abc", Right: "b", Hints: 1,
		Show: []Step{
			step(nodes+" -faults redis-restart", threeCells("redis-restart")...),
			step("explore -strategies redlock-miswired -faults redis-restart -property lease-exclusive",
				search("twice", "redlock-miswired")),
			step("explore -replay {twice.file} -strategies redlock", search("thrice", "redlock")),
			step("explore -strategies watchdog -faults failover -property one-winner", search("failover.watchdog", "watchdog")),
		},
		Questions: []Question{{Points: 2, Fields: nineFields, Choices: nineVerdicts, judge: sixCells}},
		Check:     []Step{step(nodes+" -faults amnesia", threeCells("amnesia")...)},
	},
	{
		Number: 10, Minutes: 8, Options: "abcd", Right: "c", Hints: 1,
		Show: []Step{
			step("explore -strategies setnx-fence-write -faults pause -property one-winner", search("half", "setnx-fence-write")),
			step("-strategies setnx-fenced,setnx-fence-write -faults pause -seed {seed}",
				cell("fenced", "setnx-fenced", "pause"), cell("write", "setnx-fence-write", "pause")),
			step("explore -strategies setnx-fenced -faults pause", search("whole", "setnx-fenced")),
		},
		Questions: []Question{{Points: 1, File: true, Edits: "half.schedule", judge: linesMoved}, {Points: 1, Choices: yesNo, judge: overlapsRemain}},
		Check:     []Step{step("explore -replay {file}", replayed)},
	},
	{
		Number: 11, Minutes: 6, Options: "abc", Right: "b", Hints: 1,
		Show: []Step{step("-strategies none,mysql-cas,setnx,redlock -orders 20 -drivers 10 -seed {seed}",
			cell("none", "none", "none"), cell("cas", "mysql-cas", "none"), cell("setnx", "setnx", "none"), cell("redlock", "redlock", "none"))},
		Questions: []Question{{Points: 1, judge: commandsOver}, {Points: 1, judge: count("cas.double", mistake{"cas.near_misses", "work"}, mistake{"none.double", "guard"})}},
	},
	{
		Number: 12, Minutes: 13, Options: "abc", Right: "b", Hints: 3, Own: true,
		Questions: []Question{{Points: 3, File: true, judge: ownLock}},
		Check:     []Step{step("explore -file {file} "+ownBounds, judgeOwnLock)},
	},
}

// clocks contains the flags for a load test whose result depends only on the second instance's
// clock.
const clocks = "-ttl 500ms -work 20ms -orders 10 -drivers 10 -rate 200 -seed {seed}"

// nodes contains the flags for the runs of exercise 9.
const nodes = "-strategies watchdog,redlock,redlock-miswired -seed {seed}"
