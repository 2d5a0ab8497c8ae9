package shop;

import java.util.Arrays;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;

/** A service in which drivers grab orders. It contains no code for the test. */
@SpringBootApplication
public class App {
    public static void main(String[] args) {
        SpringApplication.run(App.class, args);
    }

    /**
     * Connects to the single Redis. The watchdog of this client renews every lock that was taken without a lease time.
     */
    @Bean(destroyMethod = "shutdown")
    RedissonClient redisson(@Value("${spring.data.redis.host:}:${spring.data.redis.port:}") String address,
                            @Value("${shop.ttl-ms}") long ttlMs) {
        return connect(address, ttlMs);
    }

    /**
     * Clients of the independent Redlock nodes. The list may be empty. It has its own type, because Spring would
     * fill a plain list of clients with the client of the single Redis.
     */
    record Nodes(List<RedissonClient> all) {}

    @Bean
    Nodes nodes(@Value("${shop.redlock}") String addresses, @Value("${shop.ttl-ms}") long ttlMs) {
        return new Nodes(Arrays.stream(addresses.split(",")).filter(a -> !a.isBlank()).map(a -> connect(a, ttlMs)).toList());
    }

    private static RedissonClient connect(String address, long ttlMs) {
        Config config = new Config();
        config.setLockWatchdogTimeout(ttlMs);
        config.setThreads(4).setNettyThreads(4).useSingleServer()
            .setAddress("redis://" + address)
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(16)
            .setSubscriptionConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }
}
