# "make help" lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
KUSTOMIZE   := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
KUBECTL_VALIDATE := sigs.k8s.io/kubectl-validate@v0.0.4

# Use the race detector only if there is a C compiler, which it needs.
RACE := $(shell command -v $$(go env CC) >/dev/null && test "$$(go env CGO_ENABLED)" = 1 && echo -race)

.PHONY: help run test lint vet staticcheck prose workflows generate mutate cross claims pictures prove tools clean compose kubernetes publish-check

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

run: ## run the main job on the embedded stack
	go run ./cmd/loadgen

# install installs a tool in bin. It tries twice, because the module proxy may not answer at once. No
# tool needs cgo, whose C files take two seconds to compile.
install = export GOFLAGS="$(LEAN)" CGO_ENABLED=0 GOBIN=$(CURDIR)/bin; go install $(1) || { sleep 10; go install $(1); }

# These packages have tests with tight timing, so they run one after another. For example, a Redlock
# node must answer within 50 ms.
CLOSE := grablab/locktest grablab/internal/present/compare grablab/internal/measure/replay grablab/internal/measure/lockbench grablab/internal/grab/lock grablab/internal/grab/lock/backendtest
LONG  := grablab/internal/measure/experiment grablab/cmd/loadgen grablab/internal/explore grablab/internal/archtest grablab/internal/testbed/stack grablab/internal/grab/handofftest grablab/internal/present/lab

# All tools use the same flags, so that every package is compiled only once. LEAN leaves out debug
# information and symbols, which saves a fifth of the time. nomsgpack leaves out a part of gin.
# QUICK skips the race detector for SQLite, which is generated from C. It inlines nothing in go-redis and
# a large generated table, which halves the time to compile them.
LEAN := -gcflags=all=-dwarf=false -ldflags=-s
QUICK := -gcflags=github.com/redis/rueidis/internal/cmds=-l -gcflags=github.com/redis/go-redis/v9=-l $(if $(RACE),-gcflags=modernc.org/...=-race=false)
test lint vet staticcheck: export GOFLAGS := $(strip $(filter-out -race -tags=% -gcflags=% -ldflags=%,$(shell go env GOFLAGS)) $(RACE) -tags=nomsgpack $(LEAN) $(QUICK))
test: export GRABLAB_REQUIRE_SERVERS := 1
test: export GORACE := atexit_sleep_ms=0
# Collecting garbage less often takes more memory, but about a tenth less CPU time.
test: export GOGC := 400

# Some tests fail if the machine is too busy to keep a lease alive. gotestsum repeats them up to
# twice, when most other tests have ended, and lists them. It repeats nothing if more than five tests
# have failed, or after a data race.
REPEAT = bin/gotestsum --format standard-quiet --hide-summary skipped --rerun-fails=2 --rerun-fails-max-failures 5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report bin/repeated-$(1).txt

# The first step compiles everything once. Then the packages of CLOSE run one after another, beside
# all other tests with a lower priority and the linters with the lowest. The slowest packages start
# first.
test: tools vet ## run all tests and the linters of the code
	@$(call install,$(GOTESTSUM))
	@rm -f bin/repeated-*; idle=$$(command -v chrt >/dev/null && echo "chrt -i 0" || echo "nice -n 19"); failed=0; \
	$$idle $(MAKE) --no-print-directory staticcheck workflows >bin/lint.log 2>&1 & lint=$$!; \
	nice -n 10 $(call REPEAT,most) --packages "$(LONG) $$(go list ./... | grep -vxF "$$(printf '%s\n' $(LONG) $(CLOSE))" | tr '\n' ' ')" -- -vet=off -timeout 40m -p 3 -parallel 6 & rest=$$!; \
	$(call REPEAT,close) --packages "$(CLOSE)" -- -vet=off -timeout 20m -p 1 -parallel 4 || failed=1; \
	wait $$rest || failed=1; wait $$lint || failed=1; cat bin/lint.log; cat bin/repeated-*.txt 2>/dev/null || true; \
	exit $$failed

lint: vet staticcheck prose workflows ## run gofmt, go mod verify, go vet, staticcheck, vale and actionlint

# go mod verify fails for the local module handoff, so it gets a copy of go.mod without it.
vet:
	@echo "gofmt -l ."; unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	@echo "go mod verify"; mkdir -p bin; sed '/grablab\/handoff/d' go.mod >bin/verify.mod; cp go.sum bin/verify.sum; go mod verify -modfile=bin/verify.mod
	go vet ./... grablab/handoff

staticcheck:
	$(call install,$(STATICCHECK))
	bin/staticcheck ./... grablab/handoff

# make test leaves this out, because building vale takes a minute of CPU time.
prose: ## check the language of comments and documents with vale
	@.ci/prose

workflows: ## check the workflows of GitHub Actions with actionlint
	$(call install,$(ACTIONLINT))
	bin/actionlint .github/workflows/*.yml examples/ci/github.yml

generate: ## write the generated documents from the catalogues and results/
	go generate ./internal/present/docgen

# To tidy go.mod, use `go mod tidy -e`. Without -e, it fails because a module that only the tests of
# a dependency need has moved (golang.org/x/exp, for github.com/influxdata/tdigest).

mutate: ## put small mistakes into the code, and measure how many the tests find
	@.ci/mutate

cross: export CGO_ENABLED := 0
cross: ## build and vet everything for macOS, without running it
	@for arch in amd64 arm64; do \
	  echo "go build and go vet for darwin/$$arch"; export GOOS=darwin GOARCH=$$arch; \
	  go build -o bin/darwin-$$arch/ ./cmd/...; go vet ./...; \
	done

claims: ## measure the claims of docs/which-lock.md about commands and scripts
	@.ci/claims

pictures: ## take the pictures of the README again in a real Chromium
	GRABLAB_PICTURES=$(CURDIR)/docs/pictures go test ./internal/present/lab -run TestPictures -count=1 -v

compose: ## run the compose file as written on your Docker Engine
	GRABLAB_COMPOSE=1 go test ./internal/archtest -run TestComposeRuns -count=1 -v -timeout 60m

kubernetes: ## build the Kubernetes manifests, validate them, and run their load without a cluster
	$(call install,$(KUSTOMIZE))
	$(call install,$(KUBECTL_VALIDATE))
	GRABLAB_KUBERNETES=$(CURDIR)/bin go test ./cmd/loadgen -run TestKubernetes -count=1 -v

publish-check: ## build and test a copy with another module path: MODULE=example.com/you/grablab
	@.ci/publish-check "$(MODULE)"

prove: tools ## run the long checks, or some (PARTS="mutants claims", PARTS=-list); several hours
	@.ci/prove $(PARTS)

tools: ## install redis-server, mariadbd, postgres, zookeeper, etcd, chromium and a C compiler
	@.ci/tools

clean: ## remove the built programs, but not the results
	rm -rf bin
