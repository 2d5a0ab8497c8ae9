-- The guard `unique` inserts into the table grants. An order has at most one row here,
-- because a second insert fails as a duplicate. The ledger grabs must not have such a key.

-- +goose Up
CREATE TABLE IF NOT EXISTS grants (
  order_id  BIGINT NOT NULL PRIMARY KEY,
  driver_id BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS grants;
