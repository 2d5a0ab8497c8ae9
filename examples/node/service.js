// A service in Node.js in which drivers grab orders. It uses ioredis and mysql2.
//
// A grab reads the order, works for a while, and writes the winner to the tables orders and wins.
// The strategies protect these steps in different ways.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Redis from 'ioredis';
import mysql from 'mysql2/promise';

const { values: flags } = parseArgs({
  options: {
    port: { type: 'string', default: '8004' },
    redis: { type: 'string', default: '127.0.0.1:6379' },
    db: { type: 'string', default: 'mysql://root@127.0.0.1:3306/test' },
    ttl: { type: 'string', default: '30000' }, // lease time of a lock, in ms
    work: { type: 'string', default: '5' }, // how long a driver works between read and write, in ms
    wait: { type: 'string', default: '2000' }, // how long a driver waits for a lock, in ms
  },
});

const db = mysql.createPool({ uri: flags.db, connectionLimit: 50 });
const redis = new Redis(`redis://${flags.redis}`, { maxRetriesPerRequest: 1 });
redis.on('error', () => {}); // without a listener, ioredis prints every failed connection attempt

await db.query('CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, status TINYINT NOT NULL DEFAULT 0)');
await db.query('CREATE TABLE IF NOT EXISTS wins (id BIGINT PRIMARY KEY AUTO_INCREMENT, order_id BIGINT NOT NULL, driver_id BIGINT NOT NULL, KEY (order_id))');

const unlock = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`;

// checkThenAct grabs the order without a lock. guard is an SQL condition for the write.
async function checkThenAct(order, driver, guard = '') {
  const [rows] = await db.execute('SELECT status FROM orders WHERE id = ?', [order]);
  if (rows.length === 0) throw new Error('there is no such order');
  if (rows[0].status !== 0) return 'taken';
  await sleep(Number(flags.work));
  const conn = await db.getConnection();
  try {
    await conn.beginTransaction();
    const [changed] = await conn.execute(`UPDATE orders SET status = 1 WHERE id = ?${guard}`, [order]);
    if (guard && changed.affectedRows === 0) {
      await conn.rollback();
      conn.release();
      return 'taken';
    }
    await conn.execute('INSERT INTO wins (order_id, driver_id) VALUES (?, ?)', [order, driver]);
    await conn.commit();
    conn.release();
    return 'grabbed';
  } catch (err) {
    conn.destroy();
    throw err;
  }
}

// withLock runs grab while it holds the lock of the order. It returns 'busy' if it does not get the
// lock in time.
async function withLock(order, release, grab) {
  const [key, token] = [`grab:${order}`, randomUUID()];
  for (const until = Date.now() + Number(flags.wait); (await redis.set(key, token, 'PX', flags.ttl, 'NX')) !== 'OK'; ) {
    if (Date.now() > until) return 'busy';
    await sleep(20);
  }
  try {
    return await grab();
  } finally {
    await release(key, token).catch(() => {}); // if this fails, the lock ends with its lease
  }
}

const del = (key) => redis.del(key); // may delete the lock of another driver
const compareAndDelete = (key, token) => redis.eval(unlock, 1, key, token);
const guard = ' AND status = 0';

const strategies = {
  none: checkThenAct,
  cas: (order, driver) => checkThenAct(order, driver, guard),
  'setnx-del': (order, driver) => withLock(order, del, () => checkThenAct(order, driver)),
  setnx: (order, driver) => withLock(order, compareAndDelete, () => checkThenAct(order, driver)),
  'setnx-guarded': (order, driver) => withLock(order, compareAndDelete, () => checkThenAct(order, driver, guard)),
};
let strategy = 'setnx-guarded';

// open creates orders with consecutive ids and returns the first id.
async function open(count) {
  const conn = await db.getConnection();
  try {
    await conn.query('LOCK TABLES orders WRITE');
    const [[{ first }]] = await conn.query('SELECT COALESCE(MAX(id), 0) + 1 AS first FROM orders');
    await conn.query('INSERT INTO orders (id) VALUES ?', [Array.from({ length: count }, (_, i) => [first + i])]);
    return first;
  } finally {
    await conn.query('UNLOCK TABLES');
    conn.release();
  }
}

async function answer(call, body) {
  const grab = call.match(/^POST \/orders\/(\d+)\/grab$/);
  if (grab) {
    const outcome = await strategies[strategy](Number(grab[1]), body.driver_id);
    return [{ grabbed: 200, taken: 409, busy: 423 }[outcome], { outcome }];
  }
  switch (call) {
    case 'POST /orders':
      return [201, { first_id: await open(body.count), count: body.count }];
    case 'GET /strategies':
      return [200, Object.keys(strategies)];
    case 'PUT /strategy':
      if (!strategies[body.name]) return [400, { error: 'there is no such strategy' }];
      strategy = body.name;
      return [200, { name: strategy, lease_ms: Number(flags.ttl) }];
    case 'GET /healthz':
      return [200, { instance: flags.port }];
    default:
      return [404, { error: 'there is no such call' }];
  }
}

createServer(async (request, response) => {
  let status, body;
  try {
    let text = '';
    for await (const chunk of request) text += chunk;
    [status, body] = await answer(`${request.method} ${request.url}`, text ? JSON.parse(text) : {});
  } catch (err) {
    console.error(err);
    [status, body] = [500, { error: String(err.message) }];
  }
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}).listen(Number(flags.port), '127.0.0.1');
