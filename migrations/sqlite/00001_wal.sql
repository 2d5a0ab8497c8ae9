-- Write-ahead logging is a property of the file: readers go on during a
-- write. It cannot be switched inside a transaction.

-- +goose NO TRANSACTION
-- +goose Up
PRAGMA journal_mode = WAL;

-- +goose Down
-- The file stays as it is: other connections may be using it.
SELECT 1;
