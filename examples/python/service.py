"""A service in Python, in which drivers grab orders.

It uses redis-py and PyMySQL, but no framework, and contains nothing for tests. README.md
shows the command that tests it.

A grab reads the order, works, and writes the winner to `orders` and to the ledger `wins`.
The strategy protects these steps:

  none       no protection
  setnx      SET key token NX PX, and an unlock that compares the token
  lock       redis-py's own Lock
  mysql-cas  no lock: the UPDATE requires the expected status
"""

import argparse
import contextlib
import json
import queue
import re
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql
import redis

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY AUTO_INCREMENT,"
    " status TINYINT NOT NULL DEFAULT 0, driver_id BIGINT NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS wins (id BIGINT PRIMARY KEY AUTO_INCREMENT,"
    " order_id BIGINT NOT NULL, driver_id BIGINT NOT NULL, KEY (order_id))",
)

UNLOCK = """if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0"""


class Busy(Exception):
    """The lock was not available in time."""


class Database:
    """A pool of connections. It does not reuse a connection that has failed."""

    def __init__(self, **settings):
        self.settings = settings
        self.idle = queue.LifoQueue()

    @contextlib.contextmanager
    def connection(self):
        try:
            conn = self.idle.get_nowait()
        except queue.Empty:
            conn = pymysql.connect(**self.settings)
        try:
            yield conn
        except BaseException:
            with contextlib.suppress(Exception):
                conn.close()
            raise
        self.idle.put(conn)

    def rows(self, sql, *args):
        with self.connection() as conn, conn.cursor() as cursor:
            cursor.execute(sql, args)
            conn.commit()
            return cursor.fetchall()


class Grabs:
    """The grab, with each strategy."""

    def __init__(self, db, kv, ttl, work, wait, strategy):
        self.db, self.kv, self.ttl, self.work, self.wait = db, kv, ttl, work, wait
        self.unlock = kv.register_script(UNLOCK)
        self.strategies = {
            "none": self.plain,
            "setnx": self.setnx,
            "lock": self.lock,
            "mysql-cas": self.cas,
        }
        self.strategy = strategy

    def grab(self, order, driver):
        """Returns whether the driver has won the order, or None if there is no such order."""
        return self.strategies[self.strategy](order, driver)

    def plain(self, order, driver, guard=""):
        with self.db.connection() as conn, conn.cursor() as cursor:
            cursor.execute("SELECT status FROM orders WHERE id = %s", (order,))
            found = cursor.fetchone()
            conn.commit()
        if found is None:
            return None
        if found[0] != 0:
            return False
        time.sleep(self.work)
        with self.db.connection() as conn, conn.cursor() as cursor:
            conn.begin()
            changed = cursor.execute(
                "UPDATE orders SET status = 1, driver_id = %s WHERE id = %s" + guard, (driver, order)
            )
            if guard and not changed:
                conn.rollback()
                return False
            cursor.execute("INSERT INTO wins (order_id, driver_id) VALUES (%s, %s)", (order, driver))
            conn.commit()
        return True

    def cas(self, order, driver):
        return self.plain(order, driver, guard=" AND status = 0")

    def setnx(self, order, driver):
        key, token = f"grab:{order}", uuid.uuid4().hex
        until = time.monotonic() + self.wait
        while not self.kv.set(key, token, nx=True, px=int(self.ttl * 1000)):
            if time.monotonic() > until:
                raise Busy
            time.sleep(0.02)
        try:
            return self.plain(order, driver)
        finally:
            self.unlock(keys=[key], args=[token])

    def lock(self, order, driver):
        lock = self.kv.lock(f"lock:{order}", timeout=self.ttl, blocking_timeout=self.wait, sleep=0.02)
        if not lock.acquire():
            raise Busy
        try:
            return self.plain(order, driver)
        finally:
            with contextlib.suppress(redis.exceptions.LockError):  # the lock has expired
                lock.release()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send each answer in one packet
    grabs: Grabs
    name: str

    def answer(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def route(self):
        body = self.body()
        grabs, call = self.grabs, f"{self.command} {self.path.partition('?')[0]}"
        if found := re.fullmatch(r"POST /orders/(\d+)/grab", call):
            won = grabs.grab(int(found[1]), int(body["driver_id"]))
            if won is None:
                return 404, {"outcome": "error", "reason": "no such order"}
            return (200, {"outcome": "grabbed"}) if won else (409, {"outcome": "taken"})
        if found := re.fullmatch(r"GET /orders/(\d+)", call):
            rows = grabs.db.rows("SELECT driver_id FROM wins WHERE order_id = %s ORDER BY id", int(found[1]))
            return 200, {"order_id": int(found[1]), "grabs": [{"driver_id": r[0]} for r in rows]}
        if call == "POST /orders":
            count = int(body["count"])
            with grabs.db.connection() as conn, conn.cursor() as cursor:
                cursor.execute("LOCK TABLES orders WRITE")  # gives the new orders consecutive ids
                cursor.execute("SELECT COALESCE(MAX(id), 0) FROM orders")
                first = cursor.fetchone()[0] + 1
                cursor.executemany("INSERT INTO orders (id) VALUES (%s)", [(first + i,) for i in range(count)])
                conn.commit()
                cursor.execute("UNLOCK TABLES")
            return 201, {"first_id": first, "count": count}
        if call == "GET /strategies":
            return 200, [{"name": name} for name in grabs.strategies]
        if call == "PUT /strategy":
            if body.get("name") not in grabs.strategies:
                return 400, {"error": f"no such strategy; there are {', '.join(grabs.strategies)}"}
            grabs.strategy = body["name"]
        if call in ("GET /strategy", "PUT /strategy"):
            return 200, {"name": grabs.strategy, "lease_ms": grabs.ttl * 1000}
        if call == "GET /healthz":
            return 200, {"instance": self.name}
        return 404, {"error": "no such call"}

    def handle_call(self):
        try:
            code, answer = self.route()
        except Busy:
            code, answer = 423, {"outcome": "busy"}
        except Exception as err:  # report any error to the client
            code, answer = 500, {"outcome": "error", "error": f"{type(err).__name__}: {err}"}
            self.log_error("%s", answer["error"])
        self.answer(code, answer)

    do_GET = do_POST = do_PUT = handle_call

    def log_request(self, code="-", size="-"):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8004)
    parser.add_argument("--redis", default="127.0.0.1:6379", metavar="HOST:PORT")
    parser.add_argument("--db", default="root@127.0.0.1:3306/test", metavar="USER@HOST:PORT/NAME")
    parser.add_argument("--ttl", type=float, default=30000, metavar="MS", help="the lease of a lock")
    parser.add_argument("--work", type=float, default=5, metavar="MS", help="how long a grab works between read and write")
    parser.add_argument("--wait", type=float, default=2000, metavar="MS", help="how long a driver waits for a lock")
    parser.add_argument("--strategy", default="setnx")
    args = parser.parse_args()

    found = re.fullmatch(r"([^@:]+)(?::([^@]*))?@([^:]+):(\d+)/(\w+)", args.db)
    if not found:
        parser.error(f"--db {args.db}: want USER@HOST:PORT/NAME")
    user, password, host, port, name = found.groups()
    db = Database(host=host, port=int(port), user=user, password=password or "", database=name)
    for table in TABLES:
        db.rows(table)
    host, _, port = args.redis.partition(":")
    kv = redis.Redis(host=host, port=int(port or 6379))
    Handler.grabs = Grabs(db, kv, args.ttl / 1000, args.work / 1000, args.wait / 1000, args.strategy)
    if args.strategy not in Handler.grabs.strategies:
        parser.error(f"--strategy {args.strategy}: there are {', '.join(Handler.grabs.strategies)}")
    Handler.name = str(args.port)
    with Server(("127.0.0.1", args.port), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
