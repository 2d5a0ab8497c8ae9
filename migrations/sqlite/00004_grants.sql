-- +goose Up
-- The guard `unique` inserts into the table grants. An order has at most one row here,
-- because a second insert fails as a duplicate. The ledger grabs must not have such a key.
CREATE TABLE grants (
  order_id  INTEGER NOT NULL PRIMARY KEY,
  driver_id INTEGER NOT NULL
);

-- +goose Down
DROP TABLE grants;
