-- Kept to what MySQL, MariaDB, TiDB and Vitess all accept: no foreign keys.
-- DDL commits by itself here, so each statement must bear to be run again
-- after a crash in the middle.

-- +goose Up
CREATE TABLE IF NOT EXISTS orders (
  id         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  status     TINYINT         NOT NULL DEFAULT 0, -- 0 open, 1 grabbed
  driver_id  BIGINT          NOT NULL DEFAULT 0, -- the last to write, under the naive guard
  fence      BIGINT UNSIGNED NOT NULL DEFAULT 0, -- the highest fencing token seen
  created_at DATETIME(6)     NOT NULL,           -- UTC, as is
  grabbed_at DATETIME(6)     NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The ledger, append-only. On purpose no unique key on the order: a
-- double-grab is to be recorded as the fact that it is.
CREATE TABLE IF NOT EXISTS grabs (
  id         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_id   BIGINT          NOT NULL,
  driver_id  BIGINT          NOT NULL,
  instance   VARCHAR(64)     NOT NULL,
  strategy   VARCHAR(64)     NOT NULL,
  token      VARCHAR(255)    NOT NULL,
  fence      BIGINT UNSIGNED NOT NULL,
  grabbed_at DATETIME(6)     NOT NULL,
  KEY grabs_order_id (order_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS grabs;
DROP TABLE IF EXISTS orders;
