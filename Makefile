FUZZTIME ?= 30s
MUTANTS ?= .*
# No Go plugins in the kustomize of kubectl: they make linking slow and the program large.
TAGS = kustomize_disable_go_plugin_support

.PHONY: help build release quick short test long stress mutate race lint fuzz bench update ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./gatehouse
	go build -tags $(TAGS) -ldflags "-s -w" ./cmd/gatehouse

release: ## build the files of a release into ./dist; RELEASE="-platforms linux/amd64" builds some
	cd internal/release && go run . $(RELEASE)

quick: ## vet and test what changed, its importers and the engine's decisions, in seconds; BASE=main compares with main
	.ci/run quick

short: ## run the tests that start no server
	.ci/run short

test: ## run the ordinary tests: every feature, end to end at least once
	.ci/run test

long: ## run the long tests: kills, upgrades, histories of faults, soaks
	.ci/run long

stress: ## run PACKAGES COUNT (3) times while other processes keep the machine busy; RUN picks tests
	PACKAGES="$(PACKAGES)" COUNT="$(COUNT)" RUN="$(RUN)" .ci/run stress

mutate: ## change one decision after the other, and see a unit test of its package fail; MUTANTS=admission/plan picks some
	go test ./internal/house -run 'TestMutants/$(MUTANTS)' -mutate -count=1 -v -timeout 2h

race: ## run the tests of the engine and of goroutines in the server under the race detector
	.ci/run race

lint: ## gofmt, vet, the checks of our own, staticcheck, errorlint, deadcode, tidy modules, vulnerabilities
	.ci/run fmt vet lint house

fuzz: ## run every fuzz target for FUZZTIME (30s) each
	@grep -rl --include='*_test.go' '^func Fuzz' admission internal | xargs -n1 dirname | sort -u | while read -r dir; do \
		grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$$dir" | cut -c6- | while read -r name; do \
			echo "--- $$dir $$name"; \
			go test "./$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit 1; \
		done || exit 1; \
	done

bench: ## run the benchmarks of the engine
	go test -run '^$$' -bench . ./admission/... ./internal/engine/...

update: ## rewrite the expected parts of tests; read the diff before you commit it
	@grep -rl --exclude-dir=bench --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		go test "./$$dir" -update || exit 1; \
	done

ci: ## everything that must pass
	.ci/run
