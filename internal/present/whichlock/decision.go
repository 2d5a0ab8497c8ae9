package whichlock

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// advice is one line of the decision: what to do, and why. It stands on what the runs have
// shown.
type advice struct {
	text  string
	holds bool // the runs show what the text says
}

func (p *page) decision() {
	p.b.WriteString("\n## In a dozen lines\n\n")
	for i, a := range []advice{
		p.noLock(), p.oneProcess(), p.worth(), p.fence(), p.inDatabase(), p.oneRedis(), p.without(), p.quorum(), p.consensus(),
		p.libraries(), p.hang(), p.lookAtLoss(),
	} {
		if !a.holds {
			p.fail("the runs do not show any more: %s", a.text)
		}
		fmt.Fprintf(&p.b, "%d. %s\n", i+1, a.text)
	}
}

// per is a figure of a cell for each request; "?": it is not known.
func per(x *float64) string {
	if x == nil {
		return "?"
	}
	return figure(*x)
}

func (p *page) noLock() advice {
	cas, setnx := p.calm("mysql-cas"), p.calm("setnx")
	cells := p.cells("mysql-cas")
	return advice{
		fmt.Sprintf("**If one conditional UPDATE does it, take no lock** (`mysql-cas`: `UPDATE orders SET … WHERE id = ? AND status = 'open'`; who changed a row has won). "+
			"Under each fault that can strike it (%s) no order was grabbed twice, and none got stuck. It costs %s statements a request, for losers ask the database, too; `setnx` before an unguarded write costs %s, and %s commands of Redis.",
			faults(under(cells, struck)), per(cas.DBStatementsPerRequest), per(setnx.DBStatementsPerRequest), per(setnx.RedisCommandsPerRequest)),
		!slices.ContainsFunc(cells, grabbedTwice) && !slices.ContainsFunc(cells, stuck) && !slices.ContainsFunc(cells, unknown),
	}
}

func (p *page) oneProcess() advice {
	mutex := p.calm("mutex")
	double := 0
	if mutex.DoubleGrabs != nil {
		double = *mutex.DoubleGrabs
	}
	return advice{
		fmt.Sprintf("**A lock of one process is none** once there are two instances: with `mutex`, %d of %d orders were grabbed twice under plain load. Java's `synchronized` is one.", double, mutex.Orders),
		grabbedTwice(mutex) && double > 0,
	}
}

func (p *page) worth() advice {
	return advice{"**A lock is worth it where the work before the write is slow or expensive**, or calls others, and should not be done by several at once. " +
		"It saves that work. Before a conditional UPDATE any lock below is right: the UPDATE decides who has won.", true}
}

// remote are the choices whose lock is in servers beside the database, with a fence or without.
func (p *page) remote(fenced bool) (all []lock.Strategy) {
	for _, name := range Choices {
		s := p.strategy(name)
		if s.Needs&(lock.Redis|lock.RedisQuorum|lock.ZooKeeper|lock.Etcd) != 0 && (s.Guard == "fenced") == fenced {
			all = append(all, s)
		}
	}
	return all
}

func names(strategies []lock.Strategy) string {
	var all []string
	for _, s := range strategies {
		all = append(all, "`"+s.Name+"`")
	}
	return strings.Join(all, ", ")
}

// fence: with it no order is grabbed twice, without it each is under some fault.
func (p *page) fence() advice {
	holds := true
	for _, s := range p.remote(true) {
		cells := p.cells(s.Name)
		holds = holds && !slices.ContainsFunc(cells, grabbedTwice) && !slices.ContainsFunc(cells, unknown)
	}
	for _, s := range p.remote(false) {
		holds = holds && slices.ContainsFunc(p.cells(s.Name), grabbedTwice)
	}
	plain, fenced := p.calm("setnx"), p.calm("setnx-fenced")
	return advice{
		fmt.Sprintf("**Where the write cannot be conditional, make it check a fencing token.** With one that is raised in the database before the read and compared at the write, no fault led to an order that was grabbed twice (%s). "+
			"Without one, each lock in a server of its own let two win under some fault (%s). The token costs %s statements a request instead of %s.",
			names(p.remote(true)), names(p.remote(false)), per(fenced.DBStatementsPerRequest), per(plain.DBStatementsPerRequest)),
		holds,
	}
}

func (p *page) inDatabase() advice {
	holds := true
	for _, name := range []string{"mysql-forupdate", "mysql-getlock"} {
		holds = holds && !slices.ContainsFunc(p.cells(name), grabbedTwice)
	}
	return advice{
		fmt.Sprintf("**Nothing but a database: `mysql-getlock`**, or `mysql-forupdate`. Lock and write share a session, so that a lost lock cannot write: no fault led to an order grabbed twice. "+
			"Acquire and release together cost what %s and %s round trips to Redis do, and each waiter keeps a connection.", p.trips("mysql-getlock", "uncontended"), p.trips("mysql-forupdate", "uncontended")),
		holds,
	}
}

func (p *page) oneRedis() advice {
	handoff := p.row("handoff", "closed_loop")
	holds := handoff != nil && handoff.Jain != nil && *handoff.Jain > 0.95
	fair := "?"
	if handoff != nil && handoff.Jain != nil {
		fair = figure(*handoff.Jain)
	}
	return advice{
		fmt.Sprintf("**One Redis: `handoff`**, which has a token: %s round trips alone, %s on the mean from one holder to the next where 16 come at once, and everybody gets a turn (Jain's index %s). "+
			"`setnx-fenced` is the least code that is right: %s alone, %s on the mean from one to the next, because its waiters sleep between tries.",
			p.trips("handoff", "uncontended"), p.meanGap("handoff"), fair, p.trips("setnx-fenced", "uncontended"), p.meanGap("setnx-fenced")),
		holds,
	}
}

func (p *page) without() advice {
	setnx, watchdog := under(p.cells("setnx"), grabbedTwice), under(p.cells("watchdog"), grabbedTwice)
	return advice{
		fmt.Sprintf("**One Redis without a token is for work that may happen twice.** A renewed lease (`watchdog`, our own after Redisson's, which itself was [run as well](your-service.md)) was still unsafe under %s; one that is not renewed (`setnx`) under %d faults.",
			faults(watchdog), len(setnx)),
		len(watchdog) > 0 && len(setnx) > len(watchdog),
	}
}

func (p *page) quorum() advice {
	broken := under(p.cells("redlock"), grabbedTwice)
	var survived []experiment.Cell
	for _, c := range under(p.cells("watchdog"), grabbedTwice) {
		if !slices.ContainsFunc(broken, func(r experiment.Cell) bool { return r.Fault == c.Fault }) {
			survived = append(survived, c)
		}
	}
	return advice{
		fmt.Sprintf("**Redlock survives the loss of one node** (%s), and is not safe: unsafe under %s. It has no fencing token. Five nodes cost %s round trips, one node with `watchdog` %s; here all five share the machine.",
			faults(survived), faults(broken), p.trips("redlock", "uncontended"), p.trips("watchdog", "uncontended")),
		len(broken) > 0 && len(survived) > 0,
	}
}

func (p *page) consensus() advice {
	zk, etcd := under(p.cells("zookeeper"), grabbedTwice), under(p.cells("etcd"), grabbedTwice)
	return advice{
		fmt.Sprintf("**ZooKeeper and etcd** forget no lock, and have a token anyway (czxid, create revision). Pass it on: without it they were unsafe under %s, and %s. With it they cost what %s and %s round trips to Redis do.",
			faults(zk), faults(etcd), p.trips("zookeeper-fenced", "uncontended"), p.trips("etcd-fenced", "uncontended")),
		len(zk) > 0 && len(etcd) > 0,
	}
}

func (p *page) libraries() advice {
	var unsafe []string
	holds := true
	for _, name := range p.libraryNames() {
		cells := under(p.cells(name), grabbedTwice)
		unsafe = append(unsafe, fmt.Sprintf("`%s` under %d", name, len(cells)))
		holds = holds && len(cells) > 0
	}
	return advice{
		fmt.Sprintf("**The libraries** know nothing of your write, and are no better than their servers: unsafe under so many faults: %s. Make the write conditional, or check a token of your own.", strings.Join(unsafe, ", ")),
		holds && len(unsafe) > 0,
	}
}

func (p *page) hang() advice {
	var kept, ended, neither []string
	for _, name := range p.all() {
		for _, c := range p.cells(name) {
			switch quoted := "`" + name + "`"; {
			case c.Fault != catalog.Hang || p.strategy(name).Excludes == catalog.NoExclusion:
			case stuck(c):
				kept = append(kept, quoted)
			case letIn(c):
				ended = append(ended, quoted)
			default:
				neither = append(neither, quoted)
			}
		}
	}
	text := fmt.Sprintf("**Accept one of two**: work that never returns keeps a lock for ever if it is renewed or lives in a session (%s), and lets the next one in beside it if it runs out (%s). Bound the work.",
		strings.Join(kept, ", "), strings.Join(ended, ", "))
	if len(neither) > 0 {
		text += fmt.Sprintf(" Neither was seen of %s, whose lock ends with its caller's context.", strings.Join(neither, ", "))
	}
	return advice{text, len(kept) > 0 && len(ended) > 0}
}

// lookAtLoss: it makes a lock unsafe at fewer points, and none safe.
func (p *page) lookAtLoss() advice {
	looking, ignoring, changed := 0, 0, false
	for _, name := range p.ignorers() {
		for _, d := range p.ignored(name) {
			looking, ignoring = looking+d.looking, ignoring+d.ignoring
			changed = changed || d.cell.Verdict != catalog.Unsafe || d.looking == 0
		}
	}
	return advice{
		fmt.Sprintf("**Looking whether the lock is lost before the write makes the hole smaller, and does not close it.** A service that does not look (`-on-lost ignore`, as most) "+
			"let two win at %d points of a grab, one that looks at %d, under the same faults; with a token none did.", ignoring, looking),
		ignoring > looking && !changed,
	}
}
