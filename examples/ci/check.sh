#!/usr/bin/env bash
# Builds loadgen and the example service, and tests the service under faults for at most ten
# minutes. Fails if a verdict is worse than in baseline.yaml.
set -euo pipefail
cd "$(dirname "$0")/../.."

go build -o bin/loadgen ./cmd/loadgen
mvn -q -B -f examples/spring-redisson/pom.xml package
rm -rf results/ci
# The strategy "none" uses no lock. Its result shows that this load would find an error.
bin/loadgen run -quiet -target-file examples/spring-redisson/target.yaml \
  -only none/none -only rlock/none -only rlock/pause -only rlock/crash -only rlock/failover \
  -orders 50 -drivers 10 -rate 50 -warmup 5s -budget-total 10m \
  -baseline examples/ci/baseline.yaml -junit bin/junit.xml -out results/ci
