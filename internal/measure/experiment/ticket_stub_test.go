package experiment

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers the SQL driver
	"github.com/redis/go-redis/v9"
)

// ticketCommand makes the test binary run as an instance of a user's service, with a lock in Redis
// and its winners in MySQL. Its kind is a list of words:
//
//	none        uses no lock
//	guarded     checks again in the write that the ticket is free
//	text-ids    POST /tickets opens one order, whose ID is a string in the header Location
//	id-lists    POST /tickets opens many orders, whose IDs are strings in the response
//	later       answers 202 and decides afterwards; GET of the Location returns the result
//	looks-up    reads Redis and the table of winners before it returns a later result
//	behind      answers when it has the lock, and writes 100 ms later
//	retries     writes the winner twice
//	takes-back  deletes a driver's row after a second if another driver was first
//	striped     uses the same lock for all tickets whose numbers are equal modulo 100
//	del         releases the lock with DEL, even if another driver has it
//	no-expiry   sets no expiry on the lock
//	exits       exits if the lock cannot be released
//	repeats     repeats a failed call to Redis after two seconds
//	insistent   repeats a failed call to Redis after three seconds
//	hasty       waits only 300 ms for a reply of Redis
//	renews-on   continues to renew a lock that it held for 300 ms, unless its work takes longer
//	cancelled   uses the context of the request for the lock
//	polls       polls Redis for jobs all the time
//	fails-late  answers 500 although it has written the winner
//	guesses     does not read a ticket whose number modulo 4 is 2 or 3
//	flaky       does not wait for the lock, and fails the first grab of a ticket whose number modulo 4 is
//	            0 or 1, if it has refused another driver
//	fenced      checks in the write only that the fencing token is larger, not that the ticket is free
//	insists     repeats a write that failed
//	no-wait     refuses a driver at once if another driver has the lock
//	two-steps   records the winner, and then closes the ticket with another statement
//	in-redis    keeps the status of a ticket in Redis, and sets it after it has recorded the winner
//	resets      runs a background task that updates the table of tickets every 250 ms, but changes no row
//	slow        waits 150 ms at the start of each grab
//	swept       sets no expiry; a background task removes old locks from time to time
//	creates     creates its tables, in a way that fails if two instances do it at once
//	clears      deletes all locks when it starts
//	boots-late  needs two seconds to start
//	pool-lock   acquires a lock of a database session, and returns the session to the pool at once
//	lock-session  holds a lock of a database session, but reads and writes in another session, which it
//	            replaces by a working session if it was idle for 500 ms, as HikariCP does
//	split       like pool-lock, but releases the lock in a session that does not hold it
//	patient     waits a minute for the lock of pool-lock or split
//	fails-open  grabs without the lock if Redis fails
//	one-writer  puts grabs into a queue in Redis, from which only the other instance takes them
//	queued      puts grabs into a queue in Redis, which only instance 1 reads, and waits for the result
//	gives-up    waits only 300 ms for a response of the database
//	times-out   answers 503 to a grab that takes longer than half a second, but continues it
//	in-column   records the winner in a column of the ticket, and then closes the ticket
const ticketCommand = "ticket"

type ticketOffice struct {
	db     *sql.DB
	second *sql.DB // other connections to the same database
	kv     *redis.Client
	ttl    time.Duration
	work   time.Duration
	kind   string

	port string

	mu      sync.Mutex
	results map[string]string // later results by their paths
}

func (o *ticketOffice) is(word string) bool { return strings.Contains(o.kind, word) }

const (
	createTickets = "CREATE TABLE tickets (id VARCHAR(64) PRIMARY KEY, status INT NOT NULL DEFAULT 0, driver VARCHAR(64))"
	createWinners = "CREATE TABLE winners (n BIGINT PRIMARY KEY AUTO_INCREMENT, ticket_id VARCHAR(64) NOT NULL, driver VARCHAR(64) NOT NULL, KEY (ticket_id))"
)

func serveTickets(_ context.Context, args []string, _, stderr io.Writer) int {
	f := flag.NewFlagSet(ticketCommand, flag.ExitOnError)
	port, kv, db := f.String("port", "", ""), f.String("redis", "", ""), f.String("db", "", "")
	ttl, work, number := f.Int("ttl", 1000, ""), f.Int("work", 0, ""), f.Int("number", 0, "")
	o := &ticketOffice{results: map[string]string{}}
	f.StringVar(&o.kind, "kind", "", "")
	create := f.Bool("create", false, "")
	_ = f.Parse(args)
	o.ttl, o.work = time.Duration(*ttl)*time.Millisecond, time.Duration(*work)*time.Millisecond
	options := redis.Options{Addr: *kv, MaxRetries: -1}
	if o.is("repeats") {
		options.MaxRetries, options.MinRetryBackoff, options.MaxRetryBackoff = 1, 2*time.Second, 2*time.Second
	}
	if o.is("insistent") {
		options.MaxRetries, options.MinRetryBackoff, options.MaxRetryBackoff = 1, 3*time.Second, 3*time.Second
	}
	if o.is("hasty") {
		options.ReadTimeout = 300 * time.Millisecond
	}
	o.kv = redis.NewClient(&options)
	if o.is("gives-up") {
		*db += "?readTimeout=300ms"
	}
	o.db, _ = sql.Open("mysql", *db)
	o.db.SetMaxIdleConns(100)
	o.second, _ = sql.Open("mysql", *db)
	if o.is("creates") || *create {
		if err := o.create(); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if *create {
		return 0
	}
	if o.is("clears") {
		for _, key := range o.kv.Keys(context.Background(), "ticket:*").Val() {
			o.kv.Del(context.Background(), key)
		}
	}
	if o.is("boots-late") {
		time.Sleep(2 * time.Second)
	}
	if o.is("polls") {
		go func() {
			for ; ; time.Sleep(250 * time.Millisecond) {
				o.kv.LPop(context.Background(), "jobs")
			}
		}()
	}
	if o.is("swept") {
		go o.sweep()
	}
	o.port = *port
	if o.is("one-writer") {
		go o.lead()
	}
	if o.is("queued") && *number == 1 {
		go o.serveQueue()
	}
	if o.is("resets") {
		go func() {
			for ; ; time.Sleep(250 * time.Millisecond) {
				_, _ = o.db.Exec("UPDATE tickets SET status = 0 WHERE status = ?", -1)
			}
		}()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", o.open)
	mux.HandleFunc("POST /tickets/{id}/grab", o.serveGrab)
	mux.HandleFunc("GET /results/{id}/{driver}", func(w http.ResponseWriter, r *http.Request) {
		if o.is("looks-up") {
			o.kv.Get(r.Context(), "result:"+r.PathValue("id"))
			_ = o.db.QueryRow("SELECT driver FROM winners WHERE ticket_id = ?", r.PathValue("id")).Scan(new(string))
		}
		if o.is("one-writer") {
			fmt.Fprintf(w, `{"state":%q}`, o.kv.Get(r.Context(), r.URL.Path).Val())
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		fmt.Fprintf(w, `{"state":%q}`, o.results[r.URL.Path])
	})
	var handler http.Handler = mux
	if o.is("times-out") {
		handler = http.TimeoutHandler(mux, 500*time.Millisecond, "the request timed out")
	}
	fmt.Fprintln(stderr, http.ListenAndServe("127.0.0.1:"+*port, handler))
	return 1
}

// lead executes the queued grabs, unless this instance received the very first grab.
func (o *ticketOffice) lead() {
	for ctx := context.Background(); ; {
		if front := o.kv.Get(ctx, "front").Val(); front == "" || front == o.port {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for _, job := range o.kv.BRPop(ctx, time.Second, "jobs").Val() {
			if id, driver, ok := strings.Cut(job, " "); ok {
				o.kv.Set(ctx, "/results/"+id+"/"+driver, map[int]string{http.StatusOK: "won", http.StatusConflict: "lost"}[o.grab(ctx, id, driver)], 0)
			}
		}
	}
}

// serveQueue makes the grabs in the queue, several at a time.
func (o *ticketOffice) serveQueue() {
	for ctx := context.Background(); ; {
		for _, job := range o.kv.BRPop(ctx, time.Second, "jobs").Val() {
			if id, driver, ok := strings.Cut(job, " "); ok {
				go func() { o.kv.LPush(ctx, "reply:"+id+":"+driver, o.grab(ctx, id, driver)) }()
			}
		}
	}
}

// sweep repeatedly removes locks that are older than the TTL. A lock lives for at most 2.5 times
// the TTL.
func (o *ticketOffice) sweep() {
	ctx := context.Background()
	for range time.Tick(o.ttl * 3 / 2) {
		old := time.Now().Add(-o.ttl).UnixMilli()
		keys, _ := o.kv.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "locks", Start: 0, Stop: old, ByScore: true}).Result()
		for _, key := range keys {
			o.kv.Del(ctx, key)
			o.kv.ZRem(ctx, "locks", key)
		}
	}
}

func (o *ticketOffice) create() error {
	var n int
	err := o.db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'tickets' AND table_schema = DATABASE()").Scan(&n)
	if err != nil || n > 0 {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	if _, err = o.db.Exec(createTickets); err == nil {
		_, err = o.db.Exec(createWinners)
	}
	return err
}

// open opens orders. Their IDs are consecutive numbers, or random strings if the kind contains
// "ids".
func (o *ticketOffice) open(w http.ResponseWriter, r *http.Request) {
	var body struct{ Count int }
	_ = json.NewDecoder(r.Body).Decode(&body)
	var ids []string
	for range max(body.Count, 1) {
		id := make([]byte, 6)
		_, _ = rand.Read(id)
		ids = append(ids, "t-"+hex.EncodeToString(id))
	}
	if !o.is("ids") {
		var first int
		_ = o.db.QueryRow("SELECT COUNT(*) + 1 FROM tickets").Scan(&first)
		for i := range ids {
			ids[i] = fmt.Sprint(first + i)
		}
	}
	for _, id := range ids {
		if _, err := o.db.Exec("INSERT INTO tickets (id) VALUES (?)", id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Location", "/tickets/"+ids[0])
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"first_id":%q,"tickets":[{"id":"%s"}]}`, ids[0], strings.Join(ids, `"},{"id":"`))
}

func (o *ticketOffice) serveGrab(w http.ResponseWriter, r *http.Request) {
	var body struct{ Driver any }
	d := json.NewDecoder(r.Body)
	d.UseNumber()
	_ = d.Decode(&body)
	id, driver := r.PathValue("id"), fmt.Sprint(body.Driver)
	if o.is("one-writer") {
		o.kv.SetNX(r.Context(), "front", o.port, 0)
		o.kv.LPush(r.Context(), "jobs", id+" "+driver)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if o.is("queued") {
		o.kv.LPush(r.Context(), "jobs", id+" "+driver)
		status := http.StatusServiceUnavailable
		if reply := o.kv.BLPop(r.Context(), 20*time.Second, "reply:"+id+":"+driver).Val(); len(reply) == 2 {
			status, _ = strconv.Atoi(reply[1])
		}
		w.WriteHeader(status)
		return
	}
	if o.is("later") {
		at := "/results/" + id + "/" + driver
		o.note(at, "pending")
		w.Header().Set("Location", at)
		w.WriteHeader(http.StatusAccepted)
		go func() {
			o.note(at, map[int]string{http.StatusOK: "won", http.StatusConflict: "lost"}[o.grab(context.Background(), id, driver)])
		}()
		return
	}
	if o.is("behind") {
		key, ttl := "ticket:"+id, o.ttl
		if o.is("no-expiry") {
			ttl = 0
		}
		if ok, err := o.kv.SetNX(r.Context(), key, driver, ttl).Result(); !ok || err != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusOK)
		time.AfterFunc(100*time.Millisecond, func() { o.write(id, driver, 0) })
		return
	}
	ctx := context.Background()
	if o.is("cancelled") {
		ctx = r.Context()
	}
	w.WriteHeader(o.grab(ctx, id, driver))
}

func (o *ticketOffice) note(at, result string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.results[at] = result
}

const unlockTicket = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// grab makes a grab and returns the HTTP status for its outcome.
func (o *ticketOffice) grab(ctx context.Context, id, driver string) int {
	if o.is("slow") {
		time.Sleep(150 * time.Millisecond)
	}
	fence := int64(0)
	renewsOn := func() bool { return false }
	switch {
	case o.is("lock-session"):
		return o.grabInSessions(ctx, id, driver)
	case o.is("pool-lock"), o.is("split"):
		wait := 1
		if o.is("no-wait") {
			wait = 0
		}
		if o.is("patient") {
			wait = 60
		}
		if got := 0; o.db.QueryRow("SELECT GET_LOCK(?, ?)", id, wait).Scan(&got) != nil || got != 1 {
			return http.StatusLocked
		}
		from := o.db
		if o.is("split") {
			from = o.second
		}
		defer func() { _, _ = from.Exec("DO RELEASE_LOCK(?)", id) }()
	case !o.is("none"):
		key, token := "ticket:"+id, driver+"-"+fmt.Sprint(time.Now().UnixNano())
		if n, _ := strconv.Atoi(id); o.is("striped") {
			key = "ticket:" + strconv.Itoa(n%100)
		}
		for end := time.Now().Add(8 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			ttl := o.ttl
			if o.is("no-expiry") || o.is("swept") {
				ttl = 0
			}
			ok, err := o.kv.SetNX(ctx, key, token, ttl).Result()
			if ok && o.is("swept") {
				err = o.kv.ZAdd(ctx, "locks", redis.Z{Score: float64(time.Now().UnixMilli()), Member: key}).Err()
			}
			switch {
			case err != nil && o.is("fails-open"):
			case err != nil:
				return http.StatusInternalServerError
			case !ok && time.Now().Before(end) && !o.is("flaky") && !o.is("no-wait"):
				continue
			case !ok:
				o.kv.Set(ctx, "refused:"+id, 1, 0)
				return http.StatusLocked
			}
			break
		}
		defer func() {
			if renewsOn() {
				return
			}
			if o.is("del") {
				if err := o.kv.Del(ctx, key).Err(); err != nil && o.is("exits") {
					os.Exit(3)
				}
			} else {
				o.kv.Eval(ctx, unlockTicket, []string{key}, token)
			}
		}()
	}
	if o.is("renews-on") {
		done, locked := make(chan struct{}), time.Now()
		renewsOn = func() bool { return o.work < 300*time.Millisecond && time.Since(locked) > 300*time.Millisecond }
		go func() {
			for tick := time.NewTicker(o.ttl / 3); ; {
				select {
				case <-done:
					return
				case <-tick.C:
					o.kv.PExpire(ctx, "ticket:"+id, o.ttl)
				}
			}
		}()
		defer func() {
			if !renewsOn() {
				close(done)
			}
		}()
	}
	if o.is("fenced") {
		fence = o.kv.Incr(ctx, "fence").Val()
	}
	if n, _ := strconv.Atoi(id); o.is("guesses") && n%4 >= 2 {
		return o.write(id, driver, fence)
	}
	if o.is("in-redis") && o.kv.Exists(ctx, "closed:"+id).Val() == 1 {
		return http.StatusConflict
	}
	var status int
	if err := o.db.QueryRow("SELECT status FROM tickets WHERE id = ?", id).Scan(&status); err != nil {
		return http.StatusNotFound
	}
	if status != 0 {
		return http.StatusConflict
	}
	if o.is("flaky") && o.kv.SetNX(ctx, "first:"+id, 1, 0).Val() {
		time.Sleep(300 * time.Millisecond) // meanwhile, all other drivers are refused
		if n, _ := strconv.Atoi(id); o.kv.Exists(ctx, "refused:"+id).Val() == 1 && n%4 < 2 {
			return http.StatusInternalServerError
		}
	}
	time.Sleep(o.work)
	if o.is("two-steps") || o.is("in-redis") || o.is("in-column") {
		return o.recordFirst(ctx, id, driver)
	}
	status = o.write(id, driver, fence)
	if o.is("insists") && status == http.StatusInternalServerError {
		time.Sleep(200 * time.Millisecond)
		return o.write(id, driver, fence)
	}
	return status
}

// recordFirst records the winner, and closes the ticket in a second step.
func (o *ticketOffice) recordFirst(ctx context.Context, id, driver string) int {
	record := "INSERT INTO winners (driver, ticket_id) VALUES (?, ?)"
	if o.is("in-column") {
		record = "UPDATE tickets SET driver = ? WHERE id = ? AND status = 0"
	}
	_, err := o.db.Exec(record, driver, id)
	if err == nil && o.is("in-redis") {
		err = o.kv.Set(ctx, "closed:"+id, 1, 0).Err()
	} else if err == nil {
		_, err = o.db.Exec("UPDATE tickets SET status = 1 WHERE id = ?", id)
	}
	if err != nil {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

func (o *ticketOffice) grabInSessions(ctx context.Context, id, driver string) int {
	lock, err := o.db.Conn(ctx)
	if err != nil {
		return http.StatusInternalServerError
	}
	defer lock.Close()
	if got := 0; lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", id).Scan(&got) != nil || got != 1 {
		return http.StatusLocked
	}
	defer func() { _, _ = lock.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", id) }()
	pooled, err := o.db.Conn(ctx)
	if err != nil {
		return http.StatusInternalServerError
	}
	defer pooled.Close()
	var status int
	if err := pooled.QueryRowContext(ctx, "SELECT status FROM tickets WHERE id = ?", id).Scan(&status); err != nil {
		return http.StatusNotFound
	}
	if status != 0 {
		return http.StatusConflict
	}
	used := time.Now()
	time.Sleep(o.work)
	if time.Since(used) < 500*time.Millisecond {
		return o.writeIn(func() (*sql.Tx, error) { return pooled.BeginTx(ctx, nil) }, id, driver, 0)
	}
	return o.write(id, driver, 0)
}

func (o *ticketOffice) write(id, driver string, fence int64) int {
	return o.writeIn(o.db.Begin, id, driver, fence)
}

func (o *ticketOffice) writeIn(begin func() (*sql.Tx, error), id, driver string, fence int64) int {
	tx, err := begin()
	if err != nil {
		return http.StatusInternalServerError
	}
	defer tx.Rollback()
	guard, set := "", "status = status + 1"
	if o.is("guarded") {
		guard = " AND status = 0"
	}
	if o.is("fenced") {
		guard, set = fmt.Sprintf(" AND status < %d", fence), fmt.Sprintf("status = %d", fence)
	}
	res, err := tx.Exec("UPDATE tickets SET "+set+" WHERE id = ?"+guard, id)
	if err != nil {
		return http.StatusInternalServerError
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return http.StatusConflict
	}
	insert := func() { _, err = tx.Exec("INSERT INTO winners (ticket_id, driver) VALUES (?, ?)", id, driver) }
	if insert(); o.is("retries") {
		insert()
	}
	if err != nil || tx.Commit() != nil {
		return http.StatusInternalServerError
	}
	if o.is("fails-late") {
		return http.StatusInternalServerError
	}
	if o.is("takes-back") {
		return o.takeBack(id, driver)
	}
	return http.StatusOK
}

// takeBack deletes the driver's row after a second if another driver was first. It retries failed
// statements, for example after a deadlock.
func (o *ticketOffice) takeBack(id, driver string) int {
	var first string
	for o.db.QueryRow("SELECT driver FROM winners WHERE ticket_id = ? ORDER BY n LIMIT 1", id).Scan(&first) != nil {
		time.Sleep(time.Millisecond)
	}
	if first == driver {
		return http.StatusOK
	}
	time.AfterFunc(time.Second, func() {
		for {
			if _, err := o.db.Exec("DELETE FROM winners WHERE ticket_id = ? AND driver = ?", id, driver); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return http.StatusOK
}
