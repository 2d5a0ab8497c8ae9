package shop;

import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import java.util.stream.StreamSupport;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.PutMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** The HTTP API. It lets drivers grab orders, opens orders and switches the locking strategy. */
@RestController
class Api {
    record Driver(long driver_id) {}

    record Count(int count) {}

    record Name(String name) {}

    private final Grab grab;
    private final JdbcTemplate db;

    Api(Grab grab, JdbcTemplate db) {
        this.grab = grab;
        this.db = db;
    }

    @PostMapping("/orders/{order}/grab")
    ResponseEntity<?> grab(@PathVariable long order, @RequestBody Driver driver) throws Exception {
        return switch (grab.grab(order, driver.driver_id())) {
            case GRABBED -> ResponseEntity.ok(Map.of("outcome", "grabbed"));
            case TAKEN -> ResponseEntity.status(409).body(Map.of("outcome", "taken"));
            case BUSY -> ResponseEntity.status(423).body(Map.of("outcome", "busy"));
            case NONE -> ResponseEntity.status(404).body(Map.of("outcome", "error", "reason", "no such order"));
        };
    }

    /** Opens orders with consecutive ids. loadgen sends this request to only one instance at a time. */
    @PostMapping("/orders")
    synchronized ResponseEntity<?> open(@RequestBody Count count) {
        long first = db.queryForObject("SELECT COALESCE(MAX(id), 0) + 1 FROM orders", Long.class);
        db.batchUpdate("INSERT INTO orders (id) VALUES (?)",
            LongStream.range(first, first + count.count()).mapToObj(id -> new Object[] {id}).toList());
        return ResponseEntity.status(201).body(Map.of("first_id", first, "count", count.count()));
    }

    @GetMapping("/orders/{order}")
    Map<String, ?> order(@PathVariable long order) {
        List<Map<String, Object>> grabs = db.queryForList("SELECT driver_id FROM wins WHERE order_id = ? ORDER BY id", order);
        return Map.of("order_id", order, "grabs", grabs);
    }

    @GetMapping("/strategies")
    List<Name> strategies() {
        return StreamSupport.stream(grab.names().spliterator(), false).map(Name::new).toList();
    }

    @GetMapping("/strategy")
    Map<String, ?> strategy() {
        return Map.of("name", grab.current(), "lease_ms", grab.ttlMs());
    }

    @PutMapping("/strategy")
    ResponseEntity<?> use(@RequestBody Name name) {
        if (!grab.use(name.name())) {
            return ResponseEntity.badRequest().body(Map.of("error", "no such strategy; there are " + grab.names()));
        }
        return ResponseEntity.ok(strategy());
    }

    @GetMapping("/healthz")
    Map<String, ?> health() {
        return Map.of("status", "up");
    }

    @ExceptionHandler(Exception.class)
    ResponseEntity<?> failed(Exception e) {
        return ResponseEntity.status(500).body(Map.of("outcome", "error", "error", e.getClass().getSimpleName() + ": " + e.getMessage()));
    }
}
