// Command go-postgres is a service in which drivers grab orders in PostgreSQL.
//
// A grab reads the order, works for a while, and records the winner in the tables orders and wins.
// Each strategy protects these steps in a different way. loadgen tests the service as configured in
// target.yaml: it creates the tables and the orders, and selects the strategy with PUT /strategy.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type service struct {
	pool     *pgxpool.Pool
	work     time.Duration
	strategy atomic.Pointer[string]
}

// strategies maps each strategy name to a function that lets a driver grab an order and reports
// whether the driver won.
var strategies = map[string]func(s *service, ctx context.Context, order, driver int64) (bool, error){
	"none":            (*service).checkThenAct,
	"cas":             (*service).compareAndSet,
	"for-update":      (*service).forUpdate,
	"advisory":        (*service).advisory,
	"advisory-pooled": (*service).advisoryPooled,
}

// readAndWork reports whether the order is free. Before it returns true, it sleeps to simulate the
// driver's work.
func (s *service) readAndWork(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, order int64, lock string) (free bool, err error) {
	var status int
	err = db.QueryRow(ctx, "SELECT status FROM orders WHERE id = $1"+lock, order).Scan(&status)
	if err == nil && status == 0 {
		time.Sleep(s.work)
	}
	return status == 0, err
}

// write records the winner if the SQL condition in guard is true for the order.
func write(ctx context.Context, tx pgx.Tx, order, driver int64, guard string) (won bool, err error) {
	changed, err := tx.Exec(ctx, "UPDATE orders SET status = 1 WHERE id = $1"+guard, order)
	if err != nil || changed.RowsAffected() == 0 {
		return false, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO wins (order_id, driver_id) VALUES ($1, $2)", order, driver)
	return err == nil, err
}

func (s *service) inTx(ctx context.Context, do func(pgx.Tx) (bool, error)) (won bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		won, err = do(tx)
		return err
	})
	return won && err == nil, err
}

// checkThenAct uses no lock, so two drivers may both find the order free and both write.
func (s *service) checkThenAct(ctx context.Context, order, driver int64) (bool, error) {
	return s.readThenWrite(ctx, order, driver, "")
}

// compareAndSet updates the order only if it is still free, so only the first driver wins.
func (s *service) compareAndSet(ctx context.Context, order, driver int64) (bool, error) {
	return s.readThenWrite(ctx, order, driver, " AND status = 0")
}

// readThenWrite reads the order first, and then records the winner in a separate transaction.
func (s *service) readThenWrite(ctx context.Context, order, driver int64, guard string) (bool, error) {
	free, err := s.readAndWork(ctx, s.pool, order, "")
	if err != nil || !free {
		return false, err
	}
	return s.inTx(ctx, func(tx pgx.Tx) (bool, error) { return write(ctx, tx, order, driver, guard) })
}

// forUpdate locks the order's row until the transaction ends, so other drivers wait.
func (s *service) forUpdate(ctx context.Context, order, driver int64) (bool, error) {
	return s.inTx(ctx, func(tx pgx.Tx) (bool, error) {
		free, err := s.readAndWork(ctx, tx, order, " FOR UPDATE")
		if err != nil || !free {
			return false, err
		}
		return write(ctx, tx, order, driver, "")
	})
}

// advisory acquires an advisory lock, which PostgreSQL releases at the end of the transaction.
func (s *service) advisory(ctx context.Context, order, driver int64) (bool, error) {
	return s.inTx(ctx, func(tx pgx.Tx) (bool, error) {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", order); err != nil {
			return false, err
		}
		free, err := s.readAndWork(ctx, tx, order, "")
		if err != nil || !free {
			return false, err
		}
		return write(ctx, tx, order, driver, "")
	})
}

// advisoryPooled contains a deliberate mistake: the lock belongs to one database session, but each
// statement may use a different session from the pool. Two drivers may therefore get the same
// session, which lets both lock the order. An unlock in another session is a no-op, so the order
// may stay locked.
func (s *service) advisoryPooled(ctx context.Context, order, driver int64) (won bool, err error) {
	if _, err := s.pool.Exec(ctx, "SELECT pg_advisory_lock($1)", order); err != nil {
		return false, err
	}
	defer func() { _, _ = s.pool.Exec(ctx, "SELECT pg_advisory_unlock($1)", order) }()
	return s.checkThenAct(ctx, order, driver)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
}

func (s *service) grab(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Driver int64 `json:"driver_id"`
	}
	order, err := strconv.ParseInt(r.PathValue("order"), 10, 64)
	if err != nil || json.NewDecoder(r.Body).Decode(&body) != nil {
		answer(w, http.StatusBadRequest, "send POST /orders/ORDER/grab with {\"driver_id\": DRIVER}")
		return
	}
	switch won, err := strategies[*s.strategy.Load()](s, r.Context(), order, body.Driver); {
	case err != nil:
		log.Printf("order %d, driver %d: %v", order, body.Driver, err)
		answer(w, http.StatusInternalServerError, err.Error())
	case won:
		answer(w, http.StatusOK, "grabbed")
	default:
		answer(w, http.StatusConflict, "taken")
	}
}

func (s *service) use(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"name"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || strategies[body.Name] == nil {
		answer(w, http.StatusBadRequest, "there is no such strategy")
		return
	}
	s.strategy.Store(&body.Name)
	answer(w, http.StatusOK, body)
}

func main() {
	port := flag.Int("port", 8004, "port to listen on")
	db := flag.String("db", "postgres://postgres@127.0.0.1/postgres", "URL of the database")
	work := flag.Duration("work", 5*time.Millisecond, "how long a grab works between read and write")
	flag.Parse()
	cfg, err := pgxpool.ParseConfig(*db)
	if err != nil {
		log.Fatal(err)
	}
	cfg.MaxConns = 200 // each driver that waits for a lock occupies a connection
	s := &service{work: *work}
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		log.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(strategies))
	none := "none"
	s.strategy.Store(&none)
	http.HandleFunc("POST /orders/{order}/grab", s.grab)
	http.HandleFunc("PUT /strategy", s.use)
	http.HandleFunc("GET /strategies", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, names) })
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"instance": strconv.Itoa(*port)})
	})
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), nil))
}
