-- Write-ahead logging lets clients read during a write. It cannot be enabled in a transaction.

-- +goose NO TRANSACTION
-- +goose Up
PRAGMA journal_mode = WAL;

-- +goose Down
-- Keep the mode, because other connections may use the file.
SELECT 1;
