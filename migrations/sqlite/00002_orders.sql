-- +goose Up
CREATE TABLE orders (
  id         INTEGER  NOT NULL PRIMARY KEY AUTOINCREMENT,
  status     INTEGER  NOT NULL DEFAULT 0, -- 0 open, 1 grabbed
  driver_id  INTEGER  NOT NULL DEFAULT 0, -- the winner; under the naive guard, the last driver that wrote
  fence      INTEGER  NOT NULL DEFAULT 0, -- the highest fencing token seen
  created_at DATETIME NOT NULL,           -- always in UTC
  grabbed_at DATETIME
);

-- The ledger of all wins. No key makes the order unique, so a second win is recorded too.
CREATE TABLE grabs (
  id         INTEGER  NOT NULL PRIMARY KEY AUTOINCREMENT,
  order_id   INTEGER  NOT NULL,
  driver_id  INTEGER  NOT NULL,
  instance   TEXT     NOT NULL,
  strategy   TEXT     NOT NULL,
  token      TEXT     NOT NULL,
  fence      INTEGER  NOT NULL,
  grabbed_at DATETIME NOT NULL
);
CREATE INDEX grabs_order_id ON grabs (order_id);

-- +goose Down
DROP TABLE grabs;
DROP TABLE orders;
