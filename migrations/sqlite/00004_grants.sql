-- +goose Up
-- The guard "unique" inserts each winner into this table. Its primary key makes a second insert for
-- an order fail. The ledger cannot have such a key, because it also records second wins.
CREATE TABLE grants (
  order_id  INTEGER NOT NULL PRIMARY KEY,
  driver_id INTEGER NOT NULL
);

-- +goose Down
DROP TABLE grants;
