-- Write-ahead logging lets readers continue during a write. It is a property of the file and cannot
-- be switched on inside a transaction.

-- +goose NO TRANSACTION
-- +goose Up
PRAGMA journal_mode = WAL;

-- +goose Down
-- The file stays in this mode, because other connections may be using it.
SELECT 1;
