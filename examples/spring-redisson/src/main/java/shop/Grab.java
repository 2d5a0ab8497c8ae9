package shop;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * Grabs orders. A grab reads the order, works for a while, checks that the order was free, and writes the winner.
 * Each strategy protects these steps in a different way.
 */
@Service
class Grab {
    enum Outcome { GRABBED, TAKEN, BUSY, NONE }

    interface Strategy {
        Outcome grab(long order, long driver) throws Exception;
    }

    private static final RedisScript<Long> UNLOCK = new DefaultRedisScript<>(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0", Long.class);

    /** How long a lock with several nodes waits in total. It asks one node after the other. */
    private static final long NODES_WAIT_MS = 1000;

    private final JdbcTemplate db;
    private final TransactionTemplate transaction;
    private final StringRedisTemplate redis;
    private final RedissonClient redisson;
    private final List<RedissonClient> nodes;
    private final long ttlMs;
    private final long workMs;
    private final long waitMs;
    private final Map<String, Strategy> strategies = new LinkedHashMap<>();
    private volatile String current;

    Grab(JdbcTemplate db, TransactionTemplate transaction, StringRedisTemplate redis, RedissonClient redisson,
         App.Nodes nodes, @Value("${shop.ttl-ms}") long ttlMs, @Value("${shop.work-ms}") long workMs,
         @Value("${shop.wait-ms}") long waitMs, @Value("${shop.strategy}") String strategy) {
        this.db = db;
        this.transaction = transaction;
        this.redis = redis;
        this.redisson = redisson;
        this.nodes = nodes.all();
        this.ttlMs = ttlMs;
        this.workMs = workMs;
        this.waitMs = waitMs;
        strategies.put("none", this::plain);
        strategies.put("synchronized", this::inProcess);
        strategies.put("setnx", this::setnx);
        strategies.put("rlock", (o, d) -> under(redisson.getLock("lock:" + o), waitMs, -1, o, d));
        strategies.put("rlock-lease", (o, d) -> under(redisson.getLock("lease:" + o), waitMs, ttlMs, o, d));
        strategies.put("fair", (o, d) -> under(redisson.getFairLock("fair:" + o), waitMs, -1, o, d));
        if (!this.nodes.isEmpty()) {
            strategies.put("redlock", (o, d) -> under(new RedissonRedLock(locks(o)), NODES_WAIT_MS, ttlMs, o, d));
            strategies.put("multilock", (o, d) -> under(new RedissonMultiLock(locks(o)), NODES_WAIT_MS, ttlMs, o, d));
        }
        use(strategy);
    }

    Iterable<String> names() {
        return strategies.keySet();
    }

    String current() {
        return current;
    }

    long ttlMs() {
        return ttlMs;
    }

    boolean use(String name) {
        if (!strategies.containsKey(name)) {
            return false;
        }
        current = name;
        return true;
    }

    Outcome grab(long order, long driver) throws Exception {
        return strategies.get(current).grab(order, driver);
    }

    /** Grabs the order without any lock. */
    private Outcome plain(long order, long driver) throws Exception {
        Integer status = read(order);
        if (status == null) {
            return Outcome.NONE;
        }
        Thread.sleep(workMs);
        if (status != 0) {
            return Outcome.TAKEN;
        }
        transaction.executeWithoutResult(s -> {
            db.update("UPDATE orders SET status = 1, driver_id = ? WHERE id = ?", driver, order);
            db.update("INSERT INTO wins (order_id, driver_id) VALUES (?, ?)", order, driver);
        });
        return Outcome.GRABBED;
    }

    private Integer read(long order) {
        List<Integer> found = db.queryForList("SELECT status FROM orders WHERE id = ?", Integer.class, order);
        return found.isEmpty() ? null : found.get(0);
    }

    private synchronized Outcome inProcess(long order, long driver) throws Exception {
        return plain(order, driver);
    }

    /** Locks with SET NX PX, and compares the token before it unlocks. */
    private Outcome setnx(long order, long driver) throws Exception {
        String key = "grab:" + order;
        String token = UUID.randomUUID().toString();
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        while (!Boolean.TRUE.equals(redis.opsForValue().setIfAbsent(key, token, ttlMs, TimeUnit.MILLISECONDS))) {
            if (System.nanoTime() > until) {
                return Outcome.BUSY;
            }
            Thread.sleep(20);
        }
        return andThen(() -> plain(order, driver), () -> redis.execute(UNLOCK, List.of(key), token));
    }

    private RLock[] locks(long order) {
        return nodes.stream().map(n -> n.getLock("node:" + order)).toArray(RLock[]::new);
    }

    /** Uses a lock of Redisson. If leaseMs is -1, Redisson renews the lock while the process lives. */
    private Outcome under(RLock lock, long waitMs, long leaseMs, long order, long driver) throws Exception {
        if (!lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS)) {
            return Outcome.BUSY;
        }
        return andThen(() -> plain(order, driver), lock::unlock);
    }

    /** Works, then unlocks, as most services do. If the lock has expired, unlock throws after the write. */
    private static Outcome andThen(Callable<Outcome> work, Runnable unlock) throws Exception {
        try {
            return work.call();
        } finally {
            unlock.run();
        }
    }
}
