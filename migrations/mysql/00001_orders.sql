-- MySQL commits each DDL statement immediately, so it must be safe to rerun every statement after a crash.
-- The statements use no foreign keys, so that they also work with MariaDB, TiDB and Vitess.

-- +goose Up
CREATE TABLE IF NOT EXISTS orders (
  id         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  status     TINYINT         NOT NULL DEFAULT 0, -- 0 open, 1 grabbed
  driver_id  BIGINT          NOT NULL DEFAULT 0, -- the winner; under the naive guard, the last driver that wrote
  fence      BIGINT UNSIGNED NOT NULL DEFAULT 0, -- the highest fencing token seen
  created_at DATETIME(6)     NOT NULL,           -- always in UTC
  grabbed_at DATETIME(6)     NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The ledger of all wins. No key makes the order unique, so a second win is recorded too.
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
