package experiment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wire"
)

// serviceTrail contains the parts of a trail that only the user's service has. The proxies see only
// the service's command names, so the program must infer the purpose of each call.
type serviceTrail struct {
	parts   []tap.Phase    // the inferred phase of each call
	renewal []control.Call // background calls, each listed once
	// idle lists the SQL statements that an instance sends even while it serves no request. It
	// omits statements that may write.
	idle []control.Call
	// background lists all calls that an instance makes even while it serves no request.
	background []control.Call
	needs      lock.Backend // servers that the calls go to
	// shortLease explains that the locks live for much less than the lease. It is nil if they do not.
	shortLease error
	// leased means that a grab creates a Redis key with a TTL, which is probably a lock.
	leased  bool
	endless []string // the Redis keys that never expire, named as in the calls
	// takes is how long the fastest dry run took from the request to its last call.
	takes time.Duration
}

// trailOf infers the purpose of each call from its position. For example, a call to a lock server
// before the order is read acquires the lock. query is the ledger query, which may be empty.
func trailOf(calls []control.Call, query string) trail {
	ledger := ledgerOf(calls, query)
	calls = withoutNextJob(calls, ledger)
	t := &serviceTrail{}
	all := trail{calls: map[fault.Role][]control.Call{fault.Alone: calls}, service: t, ledger: ledger}
	write := claimOf(calls, all.ledger)
	end := len(calls)
	if write >= 0 {
		end = write
		all.claim = &control.Point{Phase: calls[write].Phase, N: calls[write].N}
	}
	work := max(0, end-1)
	for i := end - 1; i >= 0; i-- {
		if reads(calls[i]) || isFirstWrite(calls, i) {
			work = i
			break
		}
	}
	leases := writtenTables(calls[:max(0, write)]...) // tables written before the winner may contain locks
	locked, unlocksOwn := slices.ContainsFunc(calls, locks), false
	acquiring := catalog.Filter(calls[:max(0, write)], acquiresKey)
	if len(acquiring) == 0 {
		acquiring = calls[:max(0, write)]
	}
	mayHold := slices.ContainsFunc(calls[:min(work+1, len(calls))], func(c control.Call) bool {
		return locks(c) || writesTo(c, leases) || c.Target != tap.DB && !readsKey.MatchString(string(c.Phase))
	})
	for i, c := range calls {
		part := tap.Acquire
		switch {
		case i == work:
			part = fault.Work
			all.work = control.Point{Phase: c.Phase, N: c.N, After: true}
		case write >= 0 && i > write && (c.Target != tap.DB || unlocks(c) && (locked || !resets(c)) || writesTo(c, leases)):
			part = tap.Release
		case write >= 0 && i >= write && c.Target == tap.DB:
			part = tap.Claim
		case locks(c), writesTo(c, leases):
		case c.Target == tap.DB:
			part = tap.Read
		case i > work && mayHold: // otherwise, the driver reads the order before it acquires the lock
			part = tap.Renew // the call checks the lock a last time before the write
		}
		own := part == tap.Release && !unlocksOwn && usesKeyOf(c, acquiring) // whether the call uses the lock's key, and not for example an event's key
		if part == tap.Release && (all.release == nil || own) {
			all.release, unlocksOwn = &control.Point{Phase: c.Phase, N: c.N}, own
		}
		t.parts = append(t.parts, part)
		switch kind, _, _ := strings.Cut(string(c.Phase), " "); kind {
		case "redis":
			t.needs |= lock.Redis
		case "redlock":
			t.needs |= lock.RedisQuorum
		}
		if locks(c) || writesTo(c, leases) {
			t.needs |= lock.SQLLocks
		}
	}
	return all
}

// acquiresKey reports whether a call to a lock server may acquire a lock, because it refuses a key that exists, or calls a
// script. Other calls before the winner's write may belong to a cache.
func acquiresKey(c control.Call) bool {
	words := strings.Split(string(c.Phase), " ")
	command := words[min(1, len(words)-1)]
	script := strings.HasPrefix(command, "EVAL") || strings.HasPrefix(command, "FCALL")
	return c.Target != tap.DB && (script || refusesKey(words))
}

// refusesKey reports whether a Redis command with these words has no effect on a key that exists.
func refusesKey(words []string) bool {
	return len(words) > 1 && (strings.HasSuffix(words[1], "SETNX") || slices.Contains(words, "NX"))
}

// readsKey matches Redis commands that certainly acquire no lock, because they only read.
var readsKey = regexp.MustCompile(`^\S+ (EXISTS|H?GET|HEXISTS|HGETALL|HMGET|MGET|PTTL|SISMEMBER|STRLEN|TTL|TYPE)\b`)

// usesKeyOf reports whether a call to a lock server uses a key that one of the other calls uses.
func usesKeyOf(c control.Call, others []control.Call) bool {
	keys := func(c control.Call) []string {
		words := strings.Split(string(c.Phase), " ")
		return slices.DeleteFunc(words[min(2, len(words)):], func(w string) bool { return strings.ToUpper(w) == w && !strings.Contains(w, "*") }) // SET options
	}
	return c.Target != tap.DB && slices.ContainsFunc(others, func(o control.Call) bool {
		return o.Target != tap.DB && slices.ContainsFunc(keys(o), func(key string) bool { return slices.Contains(keys(c), key) })
	})
}

// isFirstWrite reports whether the nth call is the first write to its table, such as a reservation of the
// order. A repeated write may be a renewal instead.
func isFirstWrite(calls []control.Call, n int) bool {
	tables := writtenTables(calls[n])
	return len(tables) > 0 && !slices.ContainsFunc(calls[:n], func(c control.Call) bool { return writesTo(c, tables) })
}

// waitsForJob matches calls with which a worker waits for its next job.
var waitsForJob = regexp.MustCompile(`^redis (BLPOP|BRPOP|BLMOVE|BRPOPLPUSH|BLMPOP|BZPOPMIN|BZPOPMAX|BZMPOP|XREAD|XREADGROUP) `)

// withoutNextJob removes the calls with which a worker waits for its next job after it has written the
// winner. These calls do not belong to the recorded request.
func withoutNextJob(calls []control.Call, ledger string) []control.Call {
	write := claimOf(calls, ledger)
	var own []control.Call
	for i, c := range calls {
		if write < 0 || i < write || !waitsForJob.MatchString(string(c.Phase)) {
			own = append(own, c)
		}
	}
	return own
}

// ledgerOf returns the table that contains the winners. This is a table of the ledger query, if the request
// writes to one. Of several such tables, it is the one of the last INSERT or, if there is no INSERT, of the first
// write. If the request writes to none, ledgerOf chooses among all tables in the same way.
func ledgerOf(calls []control.Call, query string) string {
	read := wire.Tables(query)
	var named, other string
	for _, s := range statements(calls...) {
		verb, of, _ := strings.Cut(s, " ")
		switch {
		case !isWrite(s):
		case isOneOf(read, of):
			if named == "" || verb == "INSERT" {
				named = of
			}
		case other == "" || strings.HasSuffix(other, wire.Stored) || verb == "INSERT":
			other = of
		}
	}
	return cmp.Or(named, other)
}

// isOneOf reports whether a table is in the list. Databases often ignore the case of names.
func isOneOf(tables []string, table string) bool {
	return slices.ContainsFunc(tables, func(t string) bool { return strings.EqualFold(t, table) })
}

// lockedTable returns the table that a fault locks to delay the winner's write. If the write is a
// call such as EXECUTE or CALL, which names no table, lockedTable returns the first table of the ledger query.
func (t trail) lockedTable(query string) string {
	for _, s := range statements(t.calls[fault.Alone]...) {
		if verb, table, _ := strings.Cut(s, " "); table == t.ledger && slices.Contains(tableVerbs, verb) {
			return t.ledger
		}
	}
	return cmp.Or(append(wire.Tables(query), "")...)
}

// claimOf returns the index of the call that writes the winner, or -1 if there is none. If several
// writes belong together, it returns the first one.
func claimOf(calls []control.Call, ledger string) int {
	last := -1
	for i, c := range calls {
		if writesTo(c, []string{ledger}) {
			last = i
		}
	}
	if last < 0 {
		return -1
	}
	from := 0
	if committed := slices.ContainsFunc(calls[last:], func(c control.Call) bool { return does(c, "COMMIT") }); !committed {
		for from = last; from > 0 && writes(calls[from-1]); {
			from--
		}
	}
	for i := last; i > from; i-- {
		if does(calls[i], "BEGIN") || endsTransaction(calls[i-1]) {
			from = i
		}
	}
	return from + slices.IndexFunc(calls[from:], writes)
}

// holdsLedger reports whether an open transaction has written to the ledger, or the request has locked tables, by the
// end of call c. before says whether this was true before call c.
func (t trail) holdsLedger(c control.Call, before bool) bool {
	mysql := strings.HasPrefix(string(c.Phase), "mysql ") // in MySQL, LOCK TABLES waits for SELECT … FOR UPDATE too
	for _, s := range statements(c) {
		verb, table, _ := strings.Cut(s, " ")
		switch {
		case wire.Ends(verb) || verb == "UNLOCK":
			before = false
		case verb == "LOCK": // the statement's name does not contain the table
			before = true
		case isWrite(s) && table == t.ledger, mysql && table == t.ledger+wire.ForUpdate:
			before = true
		}
	}
	return before
}

// unlockCommands matches the Redis commands that release a lock in most services.
var unlockCommands = regexp.MustCompile(`^\S+ (DEL|UNLINK|GETDEL|EVAL|EVALSHA|FCALL|PUBLISH|DISCARD|UNWATCH)\b`)

// changesAfter reports whether a request of the user's service may still change something after the
// point, other than releasing its lock. For example, the service may first record the winner, and
// then close the order.
func (t trail) changesAfter(p fault.Point) bool {
	calls := t.calls[fault.Alone]
	i := slices.IndexFunc(calls, isAt(p.Point))
	if i < 0 || p.After { // a background call may come at any time
		i++
	}
	return slices.ContainsFunc(calls[i:], func(c control.Call) bool {
		if c.Target == tap.DB {
			return writes(c)
		}
		return !unlockCommands.MatchString(string(c.Phase))
	})
}

// storeCommands lists the Redis commands that store a value even if the key exists, so that they cannot
// acquire a working lock. cacheCommands lists all commands that are usual for a cache. For example, a
// grab may read a value from the cache and remove it after its write.
var (
	storeCommands = []string{"SET", "SETEX", "PSETEX"}
	cacheCommands = append([]string{"DEL", "EXISTS", "EXPIRE", "GET", "GETEX", "MGET", "PEXPIRE", "PTTL", "STRLEN", "TTL", "TYPE", "UNLINK"}, storeCommands...)
)

// keyUse describes what a request does with a Redis key, judging by its calls.
type keyUse struct {
	name    string
	stores  bool // whether it stores a value even if the key exists, for example in a cache
	refuses bool // whether it creates the key before it writes the winner, unless the key exists
	scripts bool // whether it calls a script for the key before it writes the winner
	unlocks bool // whether it uses the key again after it has written the winner
	other   bool // whether it uses the key in a way that is not usual for a cache
}

// useOf returns what a request does with a Redis key. The key is named as in the calls.
func (t trail) useOf(key string) keyUse {
	use, before, hasRead := keyUse{name: key}, true, false
	for _, c := range t.calls[fault.Alone] {
		before = before && (t.claim == nil || !c.IsAt(*t.claim))
		hasRead = hasRead || c.Target == tap.DB && c.IsAt(t.work)
		words := strings.Split(string(c.Phase), " ")
		if c.Target == tap.DB || !slices.Contains(words[min(2, len(words)):], key) {
			continue
		}
		refuses := refusesKey(words)
		use.refuses = use.refuses || before && refuses
		use.scripts = use.scripts || before && !refuses && acquiresKey(c)
		use.unlocks = use.unlocks || !before
		stores := slices.Contains(storeCommands, words[1])
		use.stores = use.stores || stores
		// A cache stores values that come from the database. If a key is stored before the order is
		// read, it may therefore be a lock instead. The service may have checked with GET that this
		// lock was free.
		use.other = use.other || refuses || !slices.Contains(cacheCommands, words[1]) || stores && !hasRead
	}
	return use
}

// caches reports whether the request uses the key only to cache a value, and not as a lock.
func (u keyUse) caches() bool { return u.stores && !u.other }

// onlyHolders reports whether only a driver who got past the lock makes this call. The call must lie between the first
// and the last write of the winner, because refused drivers may also make later calls, for example to log their tries. A
// call does not count if drivers also make such calls before, or background tasks do.
func (t trail) onlyHolders(c control.Call) bool {
	calls := t.calls[fault.Alone]
	same := func(o control.Call) bool { return o.Phase == c.Phase }
	i := slices.IndexFunc(calls, isAt(*t.claim))
	end := len(calls)
	for end > i+1 && !writesTo(calls[end-1], []string{t.ledger}) {
		end--
	}
	return writes(c) && slices.ContainsFunc(calls[i:end], same) && !slices.ContainsFunc(slices.Concat(calls[:i], t.service.background), same)
}

// These Redis commands read a value, which may contain the time when a lock expires, or consume one.
var (
	readsValue    = regexp.MustCompile(`^\S+ (H?GET|GETEX|GETSET|HMGET|HGETALL|MGET|TTL|PTTL|WATCH) `)
	consumesValue = regexp.MustCompile(`^\S+ (DECR|DECRBY|GETDEL|LPOP|RPOP|SPOP|ZPOPMIN|ZPOPMAX) .*\*`)
)

// refusesForever reports whether a Redis key that never expires, such as a marker or a stock, refused the drivers who made
// these calls. It considers the key of the last call that they and a winner make before the winner's write.
func (t trail) refusesForever(tries []control.Call) bool {
	var last string
	for _, c := range t.calls[fault.Alone] {
		if t.claim == nil || c.IsAt(*t.claim) {
			break
		}
		if slices.ContainsFunc(tries, func(o control.Call) bool { return o.Phase == c.Phase }) {
			last = string(c.Phase)
		}
	}
	words := strings.Split(last, " ")
	return consumesValue.MatchString(last) || slices.ContainsFunc(words[min(2, len(words)):], func(key string) bool {
		return slices.Contains(t.service.endless, key) && (refusesKey(words) || !slices.Contains(cacheCommands, words[1])) && !slices.ContainsFunc(tries, func(c control.Call) bool {
			return readsValue.MatchString(string(c.Phase)) && slices.Contains(strings.Split(string(c.Phase), " "), key)
		})
	})
}

// isLock reports whether the request probably acquires and releases a lock with this key.
func (u keyUse) isLock() bool { return (u.refuses || u.scripts) && u.unlocks }

// longestUnreleased is the longest TTL of a lock that a service does not release. A key that lives longer is probably a
// mark that the order is sold.
const longestUnreleased = 10 * time.Minute

// isUnreleasedLock reports whether the key, which is left after the request, is probably a lock that the service leaves
// to expire. Such a lock belongs to an order, but not to a driver.
func (u keyUse) isUnreleasedLock(ttl time.Duration) bool {
	return u.refuses && strings.Contains(u.name, "*") && !u.namesDriver() && ttl <= longestUnreleased
}

func (u keyUse) namesDriver() bool {
	return strings.Contains(u.name, "{driver}") || strings.Contains(u.name, "#") // # may stand for the UUID of a driver
}

// servicePoints returns the places at which a fault can be injected: before and after each remote
// call of a request, and at each background call.
func (t trail) servicePoints() []fault.Point {
	var all []fault.Point
	holdsLedger := false
	add := func(c control.Call, part tap.Phase, background bool) {
		for _, after := range []bool{false, true} {
			if after && !background {
				holdsLedger = t.holdsLedger(c, holdsLedger)
			}
			p := fault.Point{Point: control.Point{Phase: c.Phase, N: c.N, After: after}, Part: part, Background: background, HoldsLedger: holdsLedger && !background}
			if locks(c) && part == fault.Work && !after { // SELECT … FOR UPDATE acquires the lock and also reads the order
				p.Part = tap.Acquire
			}
			if !slices.ContainsFunc(all, func(o fault.Point) bool { return o.Point == p.Point && o.Background == background }) {
				all = append(all, p)
			}
		}
	}
	for i, c := range t.calls[fault.Alone] {
		if !setsUp(c) {
			add(c, t.service.parts[i], false)
		}
	}
	for _, c := range t.service.renewal {
		add(c, tap.Renew, true)
	}
	return all
}

// request contains the remote calls that the service made for a request.
type request struct {
	calls, behind []control.Call // before and after its response
	listened      time.Duration  // how long the program recorded calls after the response
	took          time.Duration  // from the request to its last call
}

// findTrail finds two equal requests for listTrail. next sends the nth request, and idle returns the
// calls that the instance makes without a request. query is the ledger query.
func findTrail(query string, next func(n int64) (request, error), idle func(n int64) ([]control.Call, error)) (t trail, err error) {
	var before, last, others []control.Call
	var deferred [][]control.Call
	var longest time.Duration
	late := map[tap.Phase]bool{} // calls that a request may still make after its response
	defer func() {
		if t.service != nil {
			t.service.background = others
		}
	}()
	for n := range int64(dryRuns) {
		req, err := next(n)
		if err != nil {
			return t, err
		}
		calls, behind := req.calls, req.behind
		if writesLate(calls, behind) {
			if others == nil {
				if others, err = idle(n); err != nil {
					return t, err
				}
			}
			behind = withoutBackground(behind, others) // a background task may write to the same table at any time
		}
		wrote := writesLate(calls, behind)
		if wrote {
			longest = max(longest, req.listened)
		}
		if wrote || deferred != nil { // a write that races with the response may also come before it
			all := withoutBackground(slices.Concat(calls, behind), others)
			if slices.ContainsFunc(deferred, func(o []control.Call) bool { return sameCalls(all, o) }) {
				t = trailOf(all, query)
				t.callsAfterAnswer = longest
				return t, nil
			}
			if wrote {
				deferred = append(deferred, all)
			}
		}
		for _, c := range behind {
			late[c.Phase] = true
		}
		calls, last = onTime(calls, late), onTime(last, late)
		if n > 0 && deferred == nil && slices.ContainsFunc(calls, writes) {
			if !sameCalls(calls, last) && others == nil {
				if others, err = idle(n); err != nil {
					return t, err
				}
			}
			if sameCalls(withoutBackground(calls, others), withoutBackground(last, others)) {
				return trailOf(catalog.Filter(calls, func(c control.Call) bool { return slices.Contains(last, c) }), query), nil
			}
		}
		before, last = last, calls
	}
	if deferred == nil && sameCalls(before, last) {
		return trailOf(last, query), nil
	}
	return t, fmt.Errorf("the dry run made %d grabs, but no two in a row made the same requests: %s. %s. Or run without faults", dryRuns, differs(before, last, deferred), ownQueue)
}

// writesLate reports whether a request writes after its response, or commits a transaction in which it
// has written before.
func writesLate(calls, behind []control.Call) bool {
	open := false
	for _, c := range calls {
		open = (open || writes(c)) && !does(c, "COMMIT")
	}
	i := slices.IndexFunc(behind, func(c control.Call) bool { return does(c, "BEGIN") || does(c, "COMMIT") })
	return slices.ContainsFunc(behind, writes) || open && i >= 0 && !does(behind[i], "BEGIN")
}

// differs names a difference between two requests. before and last are their calls before the
// response. deferred lists all calls of the requests that wrote after their responses.
func differs(before, last []control.Call, deferred [][]control.Call) string {
	switch n := len(deferred); {
	case !sameCalls(before, last):
		return difference(before, last)
	case n < 2:
		return "only one of them wrote after its response"
	default:
		return "they differ only after the response: " + difference(deferred[n-2], deferred[n-1])
	}
}

// difference names one call that only the first of two requests made, and one that only the second
// request made.
func difference(a, b []control.Call) string {
	only := func(a, b []control.Call) string {
		for _, c := range a {
			if !slices.Contains(b, c) {
				return fmt.Sprintf("%s (no. %d)", c.Phase, c.N)
			}
		}
		return "no other call"
	}
	return fmt.Sprintf("one grab makes %s, and the next one makes %s", only(a, b), only(b, a))
}

// ownQueue is the advice for services whose instances share a queue. The proxies of one instance
// then see only some of the requests.
const ownQueue = "If the worker of another instance may write, give each instance a queue of its own for the test, named after {port}. " +
	"Otherwise, or if another process writes, start the instances yourself, and name them with -targets and -target-pid. The faults then hit the second one, so put the instance that writes there. " +
	"If the order's number decides which instance writes, or into which table, test only orders of the first one, for example with path: /orders/{order}00/grab"

func callNames(calls []control.Call) string {
	return cmp.Or(catalog.Join(calls, ", ", func(c control.Call) string { return string(c.Phase) }), "none")
}

func onTime(calls []control.Call, late map[tap.Phase]bool) []control.Call {
	return slices.DeleteFunc(calls, func(c control.Call) bool { return late[c.Phase] })
}

// changingNames compares the calls of two requests to lock servers. It returns the names of those whose keys differ only in
// numbers or in tokens, with {n} or {token} in place of each. For example, a lock may be shared by all orders with the
// same remainder, and each request may use a random session ID.
func changingNames(a, b []control.Call) (names []string) {
	only := func(a, b []control.Call) []control.Call {
		return catalog.Filter(a, func(x control.Call) bool {
			return x.Target != tap.DB && !slices.ContainsFunc(b, func(y control.Call) bool { return x.Phase == y.Phase })
		})
	}
	others := only(b, a)
	for _, x := range only(a, b) {
		for _, y := range others {
			if name, ok := fleet.CommonName(string(x.Phase), string(y.Phase)); ok {
				names = append(names, name)
			}
		}
	}
	return catalog.Distinct(names)
}

// isShared reports whether a call could belong to any order. A call for one certain order has "*"
// in its name in place of the ID.
func isShared(c control.Call) bool { return !strings.Contains(string(c.Phase), "*") }

// withoutOthers returns the calls that an instance makes only while it serves a request. It removes
// calls that the instance also makes at other times, for example to poll a server.
func withoutOthers(calls, others []control.Call) []control.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c control.Call) bool {
		return isShared(c) && slices.ContainsFunc(others, func(o control.Call) bool { return o.Phase == c.Phase && o.Target == c.Target })
	})
}

// withoutBackground is like withoutOthers, but it keeps the statements that begin or end a transaction. As soon as
// the calls of background tasks are known, the proxies omit such statements from the transactions of these tasks.
func withoutBackground(calls, others []control.Call) []control.Call {
	return withoutOthers(calls, slices.DeleteFunc(slices.Clone(others), func(c control.Call) bool {
		return len(statements(c)) == 1 && (does(c, "BEGIN") || endsTransaction(c))
	}))
}

// withoutWinners removes the calls that write to the table of the winners from the calls of background
// tasks, and returns the others. A task and a grab may send the same write. The transaction around such
// a write may then belong to a grab, so a fault must be able to hit its COMMIT.
func withoutWinners(others []control.Call, ledger string) []control.Call {
	return catalog.Filter(others, func(c control.Call) bool { return !writesTo(c, []string{ledger}) })
}

// statements returns the SQL statements of calls, each reduced to its verb and its table.
func statements(calls ...control.Call) (all []string) {
	for _, c := range calls {
		if c.Target == tap.DB {
			_, text, _ := strings.Cut(string(c.Phase), " ")
			all = append(all, strings.Split(text, wire.Joint)...)
		}
	}
	return all
}

// lockFunctions matches statements that acquire a lock in the database, and unlockFunctions matches
// statements that release one.
var (
	lockFunctions   = regexp.MustCompile(`^SELECT (GET_LOCK|(?i:pg_(try_)?advisory_(xact_)?lock(_shared)?))$|^LOCK |` + wire.ForUpdate + `$`)
	unlockFunctions = regexp.MustCompile(`^SELECT (RELEASE_LOCK|RELEASE_ALL_LOCKS|(?i:pg_advisory_unlock(_shared|_all)?))$|^UNLOCK `)
)

func locks(c control.Call) bool { return slices.ContainsFunc(statements(c), lockFunctions.MatchString) }
func unlocks(c control.Call) bool {
	return slices.ContainsFunc(statements(c), unlockFunctions.MatchString)
}

// locksSession reports whether a database session holds a lock while the driver works. Such a lock lasts as long as the
// session or its transaction. It may be a row that an open transaction has written, for example to reserve the order. If
// the table is written again later, the row may instead be a lock with an expiry time.
func (t trail) locksSession() bool {
	var inTransaction, inSession, reserves, worked bool
	calls := t.calls[fault.Alone]
	for i, c := range calls {
		for _, s := range statements(c) {
			_, table, _ := strings.Cut(s, " ")
			switch {
			case wire.Ends(s) && worked:
				return inTransaction || inSession || reserves
			case wire.Begins(s):
				if reserves = false; worked { // the earlier writes were outside a transaction
					return inTransaction || inSession
				}
			case worked:
			case wire.Ends(s):
				inTransaction, reserves = false, false
			case releaseAll.MatchString(s): // a connection pool may do this with a connection that has no lock
			case unlockFunctions.MatchString(s):
				inSession = false
			case strings.HasSuffix(s, wire.ForUpdate) || strings.Contains(s, "_XACT_LOCK"):
				inTransaction = true
			case lockFunctions.MatchString(s):
				inSession = true
			case isWrite(s):
				reserves = reserves || !slices.ContainsFunc(calls[i+1:], func(c control.Call) bool { return writesTo(c, []string{table}) })
			}
		}
		worked = worked || c.IsAt(t.work)
	}
	return inTransaction || inSession
}

// worksInTransaction reports whether a transaction is open while the driver works. Even its reads may lock rows.
func (t trail) worksInTransaction() (open bool) {
	for _, c := range t.calls[fault.Alone] {
		switch {
		case endsTransaction(c):
			open = false
		case does(c, "BEGIN"):
			open = true
		}
		if c.IsAt(t.work) {
			break
		}
	}
	return open
}

// resets reports whether a call releases all locks of a database session. Some connection pools, such as that of asyncpg,
// do so for every connection that they take back, even if it has no lock.
func resets(c control.Call) bool { return slices.ContainsFunc(statements(c), releaseAll.MatchString) }

var releaseAll = regexp.MustCompile(`^SELECT (RELEASE_ALL_LOCKS|(?i:pg_advisory_unlock_all))$`)

// reads reports whether a call reads a table but writes to none.
func reads(c control.Call) bool {
	return !writes(c) && slices.ContainsFunc(statements(c), func(s string) bool {
		return strings.HasPrefix(s, "SELECT ") && (strings.HasSuffix(s, wire.ForUpdate) || !lockFunctions.MatchString(s) && !unlockFunctions.MatchString(s))
	})
}

var (
	tableVerbs = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "COPY"} // the name of the table follows
	writeVerbs = slices.Concat(tableVerbs, []string{"CALL", "EXECUTE", "LOAD"})
)

func isWrite(statement string) bool {
	verb, _, _ := strings.Cut(statement, " ")
	return statement == wire.DoBlock || strings.HasSuffix(statement, wire.Stored) || slices.Contains(writeVerbs, verb)
}

// writes reports whether a call writes to the database, judging by its name.
func writes(c control.Call) bool { return slices.ContainsFunc(statements(c), isWrite) }

func does(c control.Call, verb string) bool {
	return slices.ContainsFunc(statements(c), func(s string) bool { return s == verb || verb == "BEGIN" && wire.Begins(s) })
}

// setsUp reports whether a call only turns autocommit off. The server does nothing else for it, and a pool may also
// send it for a new connection, so no fault is injected there.
func setsUp(c control.Call) bool { return slices.Equal(statements(c), []string{wire.AutocommitOff}) }

func endsTransaction(c control.Call) bool { return slices.ContainsFunc(statements(c), wire.Ends) }

func writtenTables(calls ...control.Call) (tables []string) {
	for _, s := range statements(calls...) {
		if _, table, _ := strings.Cut(s, " "); isWrite(s) {
			tables = append(tables, table)
		}
	}
	return tables
}

func writesTo(c control.Call, tables []string) bool {
	return slices.ContainsFunc(writtenTables(c), func(table string) bool { return slices.Contains(tables, table) })
}
