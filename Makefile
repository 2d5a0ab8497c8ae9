# make help says what there is.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The race detector needs a C compiler.
RACE := $(shell command -v $$(go env CC) >/dev/null && test "$$(go env CGO_ENABLED)" = 1 && echo -race)

.PHONY: help run test lint prove tools clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

run: ## the main job, on the embedded stack
	go run ./cmd/loadgen

test: tools lint ## everything that must hold, in a few minutes
	GRABLAB_REQUIRE_SERVERS=1 GORACE=atexit_sleep_ms=0 go test $(RACE) ./...

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

prove: tools ## what takes longer; its output is kept under results/
	GRABLAB_REQUIRE_SERVERS=1 go test -tags prove -timeout 60m ./...

tools: ## redis-server and mariadbd, and a C compiler for the race detector
	@.ci/tools

clean: ## what was built; results stay
	rm -rf bin
