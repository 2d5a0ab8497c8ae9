-- Both columns come with one statement, and only where they are not there yet:
-- MySQL has no ADD COLUMN IF NOT EXISTS, and after a crash in the middle this is
-- run again.

-- +goose Up
SET @stock = (SELECT IF(COUNT(*) = 0,
  'ALTER TABLE orders ADD COLUMN units BIGINT NULL, ADD COLUMN stock BIGINT NULL', 'DO 0')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'stock');
-- units: opened with; stock: left, below 0 where it was sold once too often. NULL,
-- both: the order has one unit, and its status says whether it is left.
PREPARE add_stock FROM @stock;
EXECUTE add_stock;
DEALLOCATE PREPARE add_stock;

-- +goose Down
SET @stock = (SELECT IF(COUNT(*) = 0, 'DO 0', 'ALTER TABLE orders DROP COLUMN units, DROP COLUMN stock')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'stock');
PREPARE drop_stock FROM @stock;
EXECUTE drop_stock;
DEALLOCATE PREPARE drop_stock;
