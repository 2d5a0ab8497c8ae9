-- +goose Up
-- Both are NULL for an order of one unit, whose status says whether it is left.
ALTER TABLE orders ADD COLUMN units INTEGER; -- opened with
ALTER TABLE orders ADD COLUMN stock INTEGER; -- left; below 0: sold once too often

-- +goose Down
ALTER TABLE orders DROP COLUMN stock;
ALTER TABLE orders DROP COLUMN units;
