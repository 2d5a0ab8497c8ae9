package whichlock

import (
	"fmt"
	"regexp"
	"strings"
)

// claim is what is said of locks, and what was measured of it.
type claim struct {
	said     string
	by       string
	measured string
	again    string // the command
}

func (p *page) claims() {
	p.b.WriteString("\n## Claims, checked\n\n| claim | by | measured | again with |\n|---|---|---|---|\n")
	for _, c := range []claim{p.largeTraffic(), p.check(), p.shortSleep(), p.seconds(), p.evalsha(), p.pcall()} {
		fmt.Fprintf(&p.b, "| %s | %s | %s | `%s` |\n", c.said, c.by, c.measured, c.again)
	}
}

const claimsCommand = ".ci/claims"

// said is the part of claims.txt that a pattern's parentheses enclose.
func (p *page) said(pattern string) []string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(p.Claims)
	if found == nil {
		p.fail("results/%s has nothing that looks like %s", claimsFile, pattern)
		return make([]string, 10)
	}
	return found[1:]
}

func (p *page) rate(name, of string) (opsPerS, sent string) {
	row := p.row(name, of)
	if row == nil {
		p.fail("%s was not measured in %s", name, of)
		return "?", "?"
	}
	return fmt.Sprintf("%.0f", row.OpsPerS), per(row.SentPerOp)
}

func (p *page) largeTraffic() claim {
	redlock, redlockSent := p.rate("redlock", "many_keys")
	watchdog, watchdogSent := p.rate("watchdog", "many_keys")
	return claim{
		"“Redlock for large traffic, Redisson's lock for small”", "source articles",
		fmt.Sprintf("The other way round: 64 workers with a key each get `watchdog` %s times a second with %s commands each, `redlock` on five nodes %s times with %s. Each of the five bears all of the traffic; here they share one machine.",
			watchdog, watchdogSent, redlock, redlockSent),
		"go run ./cmd/loadgen bench -strategies watchdog,redlock -cases many_keys",
	}
}

func (p *page) check() claim {
	found := p.said(`CHECK: .* in round trips (\S+ \[[^]]+\])`)
	return claim{
		"“A CHECK before the write costs several milliseconds”", "source articles",
		fmt.Sprintf("One round trip (%s). It makes the hole smaller and does not close it ([F37](failure-modes.md#f37)).", found[0]),
		claimsCommand,
	}
}

func (p *page) shortSleep() claim {
	slow, slowSent := p.rate("redsync", "waves")
	short, shortSent := p.rate("redsync-5ms", "waves")
	told, toldSent := p.rate("handoff", "waves")
	return claim{
		"“Shorten the sleep between retries”", "source articles",
		fmt.Sprintf("It helps, and costs commands: of redsync with its pauses of 50 to 250 ms, 16 who come at once have %s acquisitions a second (%s commands each), with 5 ms %s (%s). Of a lock that tells who waits: %s (`handoff`, %s).",
			slow, slowSent, short, shortSent, told, toldSent),
		"go run ./cmd/loadgen bench -strategies redsync,redsync-5ms,handoff -cases waves",
	}
}

func (p *page) seconds() claim {
	whole := p.said(`(?m)^setnx-getset-seconds +([a-z]+)\S*(?: [✓✗])? +(\d+) +(\d+) `)
	millis := p.said(`(?m)^setnx-getset +([a-z]+)\S*(?: [✓✗])? +(\d+) +(\d+) `)
	return claim{
		"“A stamp in seconds will do” (GETSET of the time at which the lock ends)", "source articles",
		fmt.Sprintf("It cuts up to a second off each lease. With leases of 1 s and work of 600 ms under plain load: %s, %s grabs too many of 10 orders; with stamps in milliseconds %s, %s.", whole[0], whole[2], millis[0], millis[2]),
		secondsCommand,
	}
}

const secondsCommand = "go run ./cmd/loadgen -stack local -strategies setnx-getset-seconds,setnx-getset -ttl 1s -work 600ms -orders 10 -drivers 10 -rate 200 -seed 1"

func (p *page) evalsha() claim {
	found := p.said(`EVAL/EVALSHA: (\S+ \[[^]]+\])`)
	return claim{
		"“EVALSHA saves sending the script”", "Redis documentation",
		fmt.Sprintf("EVAL of the release of `setnx` takes %s of the time of EVALSHA.", found[0]), claimsCommand,
	}
}

func (p *page) pcall() claim {
	found := p.said(`pcall/call: (\S+ \[[^]]+\])`)
	return claim{
		"“`redis.pcall` is the slower, safer `redis.call`”", "common belief",
		fmt.Sprintf("The release of `setnx` with it takes %s of the time. It hands an error to the script instead of ending it: a script that does not look at the answer goes on.", found[0]), claimsCommand,
	}
}

// sources are the runs that all of this comes from.
func (p *page) sources() {
	p.b.WriteString("\n## Where it comes from\n\n| what | run | commit |\n|---|---|---|\n")
	for _, s := range []struct{ what, folder, commit string }{
		{"our strategies under all faults", matrixFolder, p.Matrix.Environment.Commit},
		{"the libraries under all faults", librariesFolder, p.Libraries.Environment.Commit},
		{"with `-on-lost ignore`", ignoringFolder, p.Ignoring.Environment.Commit},
		{"an item of many units", saleFolder, p.Sale.Environment.Commit},
		{"deciding in Redis, under all faults", stockFolder, p.Stock.Environment.Commit},
	} {
		fmt.Fprintf(&p.b, "| %s | [%s](../results/%s/report.md) | %s |\n", s.what, s.folder, s.folder, s.commit)
	}
	fmt.Fprintf(&p.b, "| each lock by itself, %d rounds | [%s](../results/%s/report.txt) | %s |\n", p.Bench.Rounds, benchFolder, benchFolder, p.Bench.Environment.Commit)
	commit := p.said(`(?m)^make claims at (\S+),`)
	fmt.Fprintf(&p.b, "| claims | [%s](../results/%s) | %s |\n", claimsFile, claimsFile, strings.TrimSpace(commit[0]))
	p.b.WriteString("\nEach is made anew by a command in [results/README.md](../results/README.md), and this page from them.\n")
}
