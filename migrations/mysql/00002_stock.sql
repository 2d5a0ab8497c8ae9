-- Adds both columns in one statement if they are missing. MySQL has no ADD COLUMN IF NOT EXISTS,
-- and this migration may be repeated after a crash.

-- +goose Up
SET @stock = (SELECT IF(COUNT(*) = 0,
  'ALTER TABLE orders ADD COLUMN units BIGINT NULL, ADD COLUMN stock BIGINT NULL', 'DO 0')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'stock');
-- units is the number of units at the start. stock is the number left, and negative if too many
-- were sold. Both are NULL for a single-unit order.
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
