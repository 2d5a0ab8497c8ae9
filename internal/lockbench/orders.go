package lockbench

import (
	"context"

	"grablab/internal/order"
)

// createOrders opens n orders with consecutive ids and returns the first.
func createOrders(ctx context.Context, dsn string, n int) (int64, error) {
	db, err := order.Connect(ctx, dsn, order.Options{MaxConns: 2})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return 0, err
	}
	return db.Create(ctx, n)
}
