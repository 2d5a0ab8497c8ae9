# make help says what there is.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The race detector needs a C compiler.
RACE := $(shell command -v $$(go env CC) >/dev/null && test "$$(go env CGO_ENABLED)" = 1 && echo -race)

# The service does not speak MessagePack: without it gin needs one package less,
# which is among those that take longest to compile. All go commands here, and those
# that tests run, share these flags: with others, packages would be compiled twice.
test lint: export GOFLAGS := $(strip $(shell go env GOFLAGS) -tags=nomsgpack)

.PHONY: help run test lint prove tools clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

run: ## the main job, on the embedded stack
	go run ./cmd/loadgen

# A Redlock node has 50 ms to answer, and gets them only if the tests of others do
# not take the processor meanwhile: those that look closely run one after the other.
CLOSE := grablab/internal/experiment grablab/internal/replay grablab/internal/lockbench grablab/internal/grab/lock

test: export GRABLAB_REQUIRE_SERVERS := 1
test: export GORACE := atexit_sleep_ms=0
test: tools lint ## everything that must hold, in a few minutes
	go test $(RACE) -vet=off -p 3 $$(go list ./... | grep -vxF "$$(printf '%s\n' $(CLOSE))")
	go test $(RACE) -vet=off -p 1 -parallel 4 $(CLOSE)

# vet and staticcheck type-check against what the tests are compiled to anyway:
# with other build flags every dependency would be compiled once more.
lint: ## gofmt, vet, staticcheck, modules as their checksums say
	@echo "gofmt -l ."; unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	go mod verify
	go vet $(RACE) ./...
	GOBIN=$(CURDIR)/bin go install $(STATICCHECK)
	GOFLAGS="$$(go env GOFLAGS) $(RACE)" bin/staticcheck ./...

# As for go.mod: a module that only tests of a dependency want (golang.org/x/exp,
# for github.com/influxdata/tdigest) has moved, so it is `go mod tidy -e`.

prove: tools ## what takes longer, and the reference results; the better part of an hour
	@.ci/prove

tools: ## redis-server, mariadbd, zookeeper and etcd, and a C compiler for the race detector
	@.ci/tools

clean: ## what was built; results stay
	rm -rf bin
