# make help says what there is.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The race detector needs a C compiler.
RACE := $(shell command -v $$(go env CC) >/dev/null && test "$$(go env CGO_ENABLED)" = 1 && echo -race)

.PHONY: help run test lint vet staticcheck generate mutate cross claims pictures prove tools clean compose

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

run: ## the main job, on the embedded stack
	go run ./cmd/loadgen

# A Redlock node has 50 ms to answer, and gets them only if the tests of others do
# not take the processor meanwhile: those that look closely run one after the other.
CLOSE := grablab/locktest grablab/internal/measure/replay grablab/internal/measure/lockbench grablab/internal/grab/lock grablab/internal/grab/lock/backendtest
LONG  := grablab/internal/measure/experiment grablab/internal/archtest grablab/cmd/loadgen

# One variant of every package: vet and staticcheck type-check against what the tests
# are compiled to anyway, and tests that run go themselves have the same flags. gin's
# MessagePack, which nothing uses, debug information and symbols would cost a fifth more
# time. The race detector does not look into what is generated from C (SQLite, which takes
# half the time so) or from a table of commands.
LEAN := -gcflags=all=-dwarf=false -ldflags=-s
UNRACED := $(if $(RACE),-gcflags=modernc.org/...=-race=false -gcflags=github.com/redis/rueidis/internal/cmds=-race=false)
test lint vet staticcheck: export GOFLAGS := $(strip $(filter-out -race -tags=% -gcflags=% -ldflags=%,$(shell go env GOFLAGS)) $(RACE) -tags=nomsgpack $(LEAN) $(UNRACED))
test: export GRABLAB_REQUIRE_SERVERS := 1
test: export GORACE := atexit_sleep_ms=0

# Those that wait the most begin first. vet and staticcheck, which analyses every
# dependency from its source, have the time that the tests leave (SCHED_IDLE, where
# there is such).
test: tools ## everything that must hold, in a few minutes
	@mkdir -p bin; idle=$$(command -v chrt >/dev/null && echo "chrt -i 0" || echo "nice -n 19"); \
	$$idle $(MAKE) --no-print-directory lint >bin/lint.log 2>&1 & lint=$$!; failed=0; \
	go test -vet=off -p 3 $(LONG) $$(go list ./... | grep -vxF "$$(printf '%s\n' $(LONG) $(CLOSE))") || failed=1; \
	go test -vet=off -p 1 -parallel 4 $(CLOSE) || failed=1; \
	wait $$lint || failed=1; cat bin/lint.log; \
	exit $$failed

lint: vet staticcheck ## gofmt, modules as their checksums say, vet, staticcheck

vet:
	@echo "gofmt -l ."; unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	go mod verify
	go vet ./...

staticcheck:
	GOFLAGS="$(LEAN)" GOBIN=$(CURDIR)/bin go install $(STATICCHECK)
	bin/staticcheck ./...

generate: ## the generated documents, from the catalogues and results/
	go generate ./internal/present/docgen

# As for go.mod: a module that only tests of a dependency want (golang.org/x/exp,
# for github.com/influxdata/tdigest) has moved, so it is `go mod tidy -e`.

mutate: ## mistakes in the packages whose word counts: prints those that no test finds; five minutes
	@.ci/mutate

# Tests of package lock signal processes of their own in ways that Windows lacks, so
# there its files without tests are vetted.
LOCK := ./internal/grab/lock

cross: export CGO_ENABLED := 0
cross: ## builds and vets everything, tests too, for Windows and macOS; nothing runs there
	@for to in windows/amd64 darwin/amd64 darwin/arm64; do \
	  echo "go build and go vet for $$to"; export GOOS=$${to%/*} GOARCH=$${to#*/}; tested=$$(go list ./...); \
	  if test $$GOOS = windows; then tested=$$(grep -vx grablab/$(LOCK:./%=%) <<<"$$tested"); go vet $$(go list -f '{{range .GoFiles}}$(LOCK)/{{.}} {{end}}' $(LOCK)); fi; \
	  go build -o bin/$$GOOS-$$GOARCH/ ./cmd/...; go vet $$tested; \
	done

claims: ## what docs/which-lock.md says of claims about commands and scripts, measured
	@.ci/claims

pictures: ## those of the README, taken anew in a real Chromium
	GRABLAB_PICTURES=$(CURDIR)/docs/pictures go test ./internal/present/lab -run TestPictures -count=1 -v

compose: ## the compose file as written, on your Docker Engine
	GRABLAB_COMPOSE=1 go test ./internal/archtest -run TestComposeRuns -count=1 -v -timeout 60m

prove: tools ## what takes longer, and the reference results; two hours and a quarter
	@.ci/prove

tools: ## redis-server, mariadbd, postgres, zookeeper, etcd and chromium, and a C compiler for the race detector
	@.ci/tools

clean: ## what was built; results stay
	rm -rf bin
