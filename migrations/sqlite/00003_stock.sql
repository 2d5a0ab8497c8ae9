-- +goose Up
-- Both columns are NULL for a single-unit order.
ALTER TABLE orders ADD COLUMN units INTEGER; -- units at the start
ALTER TABLE orders ADD COLUMN stock INTEGER; -- units left; negative if too many were sold

-- +goose Down
ALTER TABLE orders DROP COLUMN stock;
ALTER TABLE orders DROP COLUMN units;
