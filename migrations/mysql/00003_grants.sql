-- The guard "unique" inserts each winner into this table. Its primary key makes a second insert for
-- an order fail. The ledger cannot have such a key, because it also records second wins.

-- +goose Up
CREATE TABLE IF NOT EXISTS grants (
  order_id  BIGINT NOT NULL PRIMARY KEY,
  driver_id BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS grants;
