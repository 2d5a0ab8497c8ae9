package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Lets loadgen test the locks of the service, and checks the verdicts in run.json. */
class LocksIT {
    private static final Path ROOT = Path.of("../..").toAbsolutePath().normalize();
    private static JsonNode cells;

    @BeforeAll
    static void runLoadgen(@TempDir Path dir) throws Exception {
        Path out = dir.resolve("run");
        int code = new ProcessBuilder("bin/loadgen", "run", "-quiet", "-target-file", "examples/spring-redisson/target.yaml",
                "-only", "none/none", "-only", "rlock/none", "-only", "rlock/crash", "-orders", "20", "-drivers", "10", "-rate", "50", "-warmup", "5s", "-out", out.toString())
                .directory(ROOT.toFile()).inheritIO().start().waitFor();
        assertEquals(0, code, "exit code of loadgen");
        cells = new ObjectMapper().readTree(out.resolve("run.json").toFile()).get("cells");
    }

    @ParameterizedTest
    @CsvSource({
        "none, none, unsafe", // has no lock, so it shows that the load finds errors
        "rlock, none, safe",
        "rlock, crash, safe",
    })
    void verdict(String strategy, String fault, String verdict) {
        for (JsonNode cell : cells) {
            if (cell.get("strategy").asText().equals(strategy) && cell.get("fault").asText().equals(fault)) {
                assertEquals(verdict, cell.get("verdict").asText(), cell.get("reason").asText());
                return;
            }
        }
        throw new AssertionError("run.json has no such cell");
    }
}
