# Every target prints what it does. Start with: make test

GO     ?= go
TOOL    = $(GO) tool -modfile=internal/tools/go.mod
TIMEOUT ?= 15m
# Packages, and tests within one, that run at a time: most tests wait for servers, processes and time.
AT_ONCE ?= -p 3 -parallel 4
FUZZTIME ?= 30s
# The packages with the longest tests, which mostly wait: they begin first, so that none of them runs alone at the end.
LONGEST = ./redisstore ./diskstore ./internal/e2e ./internal/chaos
# Other modules in this repository, such as bench. The tools module holds no code.
MODULES = $(filter-out ./internal/tools, \
	$(patsubst %/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path '*/.*' | sort)))

# Tests of much work that is done by one goroutine at a time, or of the code of other tests on more servers, and faults
# under which clients run no code of their own. CI has them without the race detector, which finds nothing in them and
# makes them 5 to 50 times as slow: with it, Pebble checks its invariants too. The other tests run the same code with
# it, and make long runs these as well.
PLAIN_TESTS = AKeyThatWasHeld|BulkCallsWalk|CallsByIDDo|CheckFinds|ClaimReads|ClaimsAndAcksGoOn|CompactionsLeave|$\
	Conformance(OfAShared|OfShards|Over)|DailyJob|DamageIsFound|DeepJSON|Docs(CodeC|LinkTo|TestRuns)|$\
	EveryStartOfAKey|Export(OfMany|ThatIsCut)|ForgettingWalks|ForwarderKilled|FullTmpfs|Histogram(After|Equals|Reads)|$\
	ImportOfAnExport|InspectOf|KeysOnServers|LinesAreShort|ListsAreBounded|ManyLargeMessages|MoveLosesNothing|$\
	MovesOfKeysAre|NoHistory|NoScriptFails|NothingAcknowledgedIsLostInACrash|$\
	Open(AfterACrash|Notices|RefusesADamaged)|Order(IsKeptAfter|IsThatOf|edKeysAreTheSame)|OtherSystems|$\
	PowerFailure|PurgeMakesRoom|PurgeOfManyHe|RRule|Recover(Continues|Loses|Of|Reads|Saves|W)|RepairInSeveral|$\
	ScheduleOf(Each|Many)|ScheduleSurvivesAKill|SearchPagesAreBounded|SendFits|ServeWithBad|StateMachine|$\
	StateOfKeysWith|TheExplorerFinds|TopicKeeps|UrgencyIsThatOf|UsedUpReserve|WorstCases|WrongCounts
PLAIN_FAULTS = clock|consumer-kill|directory|disk-full|failover|flow-.*|frozen-node|full|holder-stop|kill-.*|large|$\
	late-claims|migrate|partition|poison|producer-kill|reshard-.*|unread
# The rules of the contract about flows, of engines with one server and with several.
PLAIN_RULES = ^TestConformance$$/^(flow|order|urgency)|^TestConformance$$/^(alone|cluster|valkey)/^(flow|order|urgency)
PLAIN = ^Test($(PLAIN_TESTS))|^TestPromisesAreKeptUnder/^($(PLAIN_FAULTS))$$|$(PLAIN_RULES)
# The packages with such tests or benchmarks.
PLAIN_PACKAGES = ./internal/chaos $(filter-out $(addsuffix /%,$(MODULES)), \
	$(sort $(dir $(shell grep -rlE --include='*_test.go' '^func (Benchmark|Test($(PLAIN_TESTS)))' .))))

.DEFAULT_GOAL = help
.PHONY: help setup fmt check test unit cli once extras modules long chaos fuzz bench cover

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## install what the tests need and this machine lacks (redis-server; apt-get or brew)
	internal/tools/setup.sh

fmt: ## format all Go code
	gofmt -w .

check: ## formatting, go vet, staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		printf 'gofmt would change these files; run make fmt:\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(TOOL) staticcheck ./...

test: setup ## everything that a change must pass
	@$(MAKE) --no-print-directory -j2 check extras # the one computes, the other loads packages
	@$(MAKE) --no-print-directory -j2 unit cli # most tests wait, and half of a machine with two cores would be idle
	@$(MAKE) --no-print-directory -j2 once modules

unit: ## the tests, with the race detector
	$(GO) test -race -vet=off -skip '$(PLAIN)' $(AT_ONCE) -timeout $(TIMEOUT) \
		$(LONGEST) $$($(GO) list ./... | grep -v '/cmd/later$$')

cli: ## the tests of the command, without the race detector: most of the work is done by other packages, and processes
	$(GO) test -vet=off -skip '$(PLAIN)' -parallel 4 -timeout $(TIMEOUT) ./cmd/later

once: ## each benchmark once, so that none of them rots, and the tests that run without the race detector
	LATER_FAR_PENDING=5000 LATER_HISTOGRAM_PENDING=5000 LATER_WORST_LEASES=20 \
		$(GO) test -vet=off -run '$(PLAIN)' -bench . -benchtime 1x $(AT_ONCE) -timeout $(TIMEOUT) \
		$(LONGEST) $(PLAIN_PACKAGES)

extras: # what the other modules need: databases and a browser, where they may be installed
	@internal/tools/setup.sh modules

modules: extras ## build, vet and test the other modules of this repository; installs databases and a browser if it may
	@printf '%s\n' $(MODULES) | xargs -P 2 -I '{}' sh -c 'cd {} && echo "cd {} && $(GO) build, vet, test ./..." && \
		$(GO) build -buildvcs=false -o /dev/null ./... && $(GO) vet ./... && \
		$(GO) test -vet=off $(AT_ONCE) -timeout $(TIMEOUT) ./...'

long: setup ## the tests with more and longer random histories
	LATER_LONG=1 $(GO) test -race -timeout 60m ./...

chaos: setup ## the attack at length; CHAOS='-runs 200 -duration 20s', see docs/reliability.md
	$(GO) run ./internal/chaos/cmd/chaos $(CHAOS)

fuzz: setup ## each fuzz target for FUZZTIME (30s, or a number of runs: 1000000x)
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "cd $$(dirname $$file) && $(GO) test -run '^$$' -fuzz '^$$name$$' -fuzztime $(FUZZTIME)"; \
			(cd $$(dirname $$file) && $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -timeout 0 \
				-fuzzminimizetime 1s .); done; done

bench: setup ## the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./...

cover: setup ## coverage of all packages by all tests, in cover.out
	$(GO) test -timeout $(TIMEOUT) -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
