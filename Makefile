# The targets to build, test and package Longwire; `make help` lists them.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# CI sets LONGWIRE_CI for all steps, so that `check` and `test` share one build with warnings as errors. Elsewhere `check` has
# its own build folder, because its flags would otherwise invalidate the ordinary build.
#
# The integration tests and the documented API run on release builds in CI: bench-check needs these in any case, and gateways of
# a debug build would take several times the processor time. Elsewhere they run on the debug build that a developer has.
ifdef LONGWIRE_CI
check_flags :=
check_modules := .build/debug/Modules
tested := release
build_tested = $(programs)
else
check_flags := --scratch-path .build/check
check_modules := .build/check/debug/Modules
tested := debug
build_tested = swift build
endif

python := .build/python/bin/python
# Debug information would take a quarter of the time of a release build. One call builds all programs, side by side.
release := swift build -c release -debug-info-format none
programs := LONGWIRE_PROGRAMS=1 $(release)
shell_scripts := .ci/run deploy/install-dependencies.sh Tests/Checks/check-client.sh Tests/Checks/check-clocks.sh Tests/Checks/check-documentation.sh Tests/Checks/check-imports.sh Tests/Checks/check-strategies.sh \
	Tests/Fuzz/fuzz.sh Tests/Checks/Sanitizers/sanitize.sh Tests/Checks/integration-tests.sh Tests/Checks/swift-tests.sh deploy/debian/build.sh Clients/java/build.sh Clients/java/benchmark.sh Clients/java/driver/driver.sh

.PHONY: help
help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

.PHONY: run
run: dependencies-build ## Installs what is missing, builds in release mode and starts the gateway on its defaults.
	@[ -x .build/release/longwired ] || echo 'Compiling takes four to five minutes on two cores, once.'
	$(programs)
	exec .build/release/longwired

.PHONY: build
build: dependencies-build ## Builds the three programs in release mode.
	$(programs)

OUTPUT ?= .build/packages
.PHONY: deb
deb: dependencies-build ## Makes the Debian packages longwire and longwire-sender in OUTPUT=.build/packages; they need no Swift.
	deploy/install-dependencies.sh package
	for program in longwired longwire longwire-sender; do \
		swift build -c release --static-swift-stdlib --scratch-path .build/deb --product "$$program"; \
	done
	deploy/debian/build.sh --binaries .build/deb/release --output "$(OUTPUT)"
	lintian --allow-root "$(OUTPUT)"/longwire*.deb

.PHONY: test
test: dependencies-test ## Installs what is missing and runs all tests, Swift's and the integration tests.
	deploy/install-dependencies.sh accessibility
	swift build --build-tests
	Tests/Checks/swift-tests.sh
	$(build_tested)
	LONGWIRE_BIN="$(CURDIR)/.build/$(tested)" Tests/Checks/integration-tests.sh

KILLS ?= 20
.PHONY: conformance
conformance: dependencies-test ## Runs the conformance suite on each client whose driver exists, then on planted faults: CLIENT=name, KILLS=20.
	if command -v swift >/dev/null; then swift build --product longwire-conformance-driver; fi
	if command -v javac >/dev/null; then Clients/java/build.sh --jars; fi
	$(python) -m pytest -q Tests/Conformance -rs --kills $(KILLS) $(if $(CLIENT),--client $(CLIENT))
	$(python) -m pytest -q Tests/Conformance --planted

.PHONY: check
check: dependencies-build ## Warnings as errors, formatting, import, clock, strategy, plain-English and translation rules, shell syntax, what deploy/ has.
	LONGWIRE_CI=1 swift build $(check_flags) --build-tests
	swift format lint --strict --recursive --parallel Package.swift Sources Tests Examples
	Tests/Checks/check-imports.sh --self-test
	Tests/Checks/check-imports.sh
	Tests/Checks/check-clocks.sh --self-test
	Tests/Checks/check-clocks.sh
	Tests/Checks/check-strategies.sh --self-test
	Tests/Checks/check-strategies.sh
	Tests/Checks/check-client.sh --self-test
	Tests/Checks/check-client.sh
	Tests/Checks/check-documentation.sh --self-test $(check_modules)
	Tests/Checks/check-documentation.sh $(check_modules)
	Tests/Checks/check-words.py --self-test
	Tests/Checks/check-words.py
	Tests/Checks/check-translations.py --self-test
	Tests/Checks/check-translations.py
	for script in $(shell_scripts); do bash -n "$$script"; done
	python3 -c 'import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]' Tests/Benchmarks/*.py Tests/Benchmarks/senders/*.py Tests/Benchmarks/check/*.py Tests/Benchmarks/peers/*.py Tests/Checks/API/*.py Tests/Conformance/*.py Tests/Conformance/rules/*.py
	for driver in mqtt redis; do cc -std=gnu17 -O2 -Wall -Wextra -Werror -fsyntax-only Tests/Benchmarks/peers/$${driver}_load.c; done
	cc -std=gnu17 -O2 -Wall -Wextra -Werror -fsyntax-only Tests/Benchmarks/peers/net.c Tests/Benchmarks/peers/bare_router.c Tests/Benchmarks/peers/bare_fanout.c Tests/Benchmarks/check/allocations.c
	Tests/Checks/Proof/table.py --check
	deploy/install-dependencies.sh lint
	/usr/bin/python3 Tests/Checks/check-deploy.py --self-test
	/usr/bin/python3 Tests/Checks/check-deploy.py
	/usr/bin/python3 Tests/Checks/check-alerts.py --self-test
	/usr/bin/python3 Tests/Checks/check-alerts.py

# bash sets SECONDS itself, so only a value from make's command line counts.
fuzz_seconds := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
.PHONY: fuzz
fuzz: dependencies-build ## Fuzzes every target for SECONDS=60, or one: TARGET=name. JSON=file for the figures.
	Tests/Fuzz/fuzz.sh --seconds $(fuzz_seconds) $(if $(TARGET),--target $(TARGET)) $(if $(JSON),--json $(JSON))

REQUESTS ?= 10000000
.PHONY: roam
roam: dependencies-build ## Sends REQUESTS=10000000 random requests and frames through a whole gateway in one process, without a fuzzer.
	$(release) --product longwire-roam
	mkdir -p .build/proof
	.build/release/longwire-roam --seed $(SEED) --requests $(REQUESTS) --json .build/proof/roam.json

.PHONY: sanitize
sanitize: dependencies-test ## Runs the tests under the thread sanitizer and the address sanitizer. JSON=file for the figures.
	Tests/Checks/Sanitizers/sanitize.sh $(if $(JSON),--json $(JSON))

.PHONY: test-api
test-api: dependencies-test ## Asks a real gateway everything that docs/use/openapi.yaml describes, and much that it does not. EXAMPLES=60
	deploy/install-dependencies.sh api
	$(build_tested)
	LONGWIRE_BIN="$(CURDIR)/.build/$(tested)" $(python) Tests/Checks/API/run.py --examples $(EXAMPLES) --seed $(SEED)

.PHONY: client-javascript
client-javascript: ## Runs the JavaScript client's tests in Node: codec, hash, state, sessions, WebSocket, mini program, declarations.
	deploy/install-dependencies.sh javascript
	node --test --test-force-exit Clients/javascript/test/*.test.mjs

.PHONY: screenshots
screenshots: dependencies-test ## Takes pictures of every page of the console and of README's tour (.build/screenshots), and those in docs/images.
	deploy/install-dependencies.sh screenshots
	swift build --product longwired
	swift build --product longwire
	LONGWIRE_BIN="$(CURDIR)/.build/debug" $(python) Tests/Integration/rigs/screenshots.py .build/screenshots
	LONGWIRE_BIN="$(CURDIR)/.build/debug" $(python) Tests/Integration/rigs/tour.py --pictures .build/screenshots --readme docs/images
	LONGWIRE_BIN="$(CURDIR)/.build/debug" $(python) Tests/Integration/rigs/tour.py --chinese --pictures .build/screenshots --readme docs/images

.PHONY: demo
demo: dependencies-build ## Plays the whole story against a real gateway and prints each step; after make run it takes a few seconds.
	deploy/install-dependencies.sh demo
	$(programs)
	LONGWIRE_BIN="$(CURDIR)/.build/release" /usr/bin/python3 Tests/Integration/rigs/demo.py

.PHONY: cluster
cluster: dependencies-build ## Starts three gateways on a Redis Cluster of this machine, until Ctrl-C; nothing of it stays.
	deploy/install-dependencies.sh cluster
	$(programs)
	LONGWIRE_BIN="$(CURDIR)/.build/release" /usr/bin/python3 Tests/Integration/rigs/cluster.py

.PHONY: bench
bench: bench-apns bench-vendors ## Measures a release build on this machine (docs/results/Performance.md): about twenty minutes.
	Tests/Benchmarks/figures.py

.PHONY: bench-apns
bench-apns: dependencies-test ## The part of bench that measures longwire-sender, beside aioapns: RUNS=3, about four minutes.
	deploy/install-dependencies.sh bench
	$(python) Tests/Benchmarks/apns.py --runs $(RUNS)

.PHONY: bench-vendors
bench-vendors: dependencies-test ## The part of bench that measures longwire-sender for the other vendors, beside senders of PyPI: RUNS=3, about ten minutes.
	deploy/install-dependencies.sh bench counting
	$(python) Tests/Benchmarks/push_vendors.py --runs $(RUNS)

.PHONY: bench-cluster
bench-cluster: dependencies-test ## Measures gateways on Redis beside the embedded engine, takeovers too (docs/use/Cluster.md): RUNS=3, about fifteen minutes.
	$(python) Tests/Benchmarks/cluster.py --runs $(RUNS) --quiet-within 60

.PHONY: simulate-cluster
simulate-cluster: dependencies-build ## Simulates 256 gateways with a million devices, in which gateways come and go: about a minute.
	$(release) --product longwire-simulate-cluster
	.build/release/longwire-simulate-cluster

.PHONY: bench-check
bench-check: dependencies-test ## Counts what a message costs in a release build and compares with the committed thresholds.
	deploy/install-dependencies.sh counting
	$(programs)
	$(python) Tests/Benchmarks/bench-check.py

soak_seconds := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
SEED ?= 1
EXAMPLES ?= 60
ROUNDS ?= 50
CLUSTER_ROUNDS ?= 30
CUTS ?= 500
RUNS ?= 3
.PHONY: soak
soak: simulate worlds rounds cluster-rounds power upgrade ## Simulates for SECONDS=60 from SEED=1 on, kills a real gateway ROUNDS=50 times under load, breaks a cluster CLUSTER_ROUNDS=30 times, and lets a gateway's power fail CUTS=500 times.

.PHONY: simulate
simulate: dependencies-build ## The simulation's half of soak alone; figures go to .build/proof/soak.json.
	$(release) --product longwire-soak
	mkdir -p .build/proof
	.build/release/longwire-soak --seed $(SEED) --seconds $(soak_seconds) --json $(if $(JSON),$(JSON),.build/proof/soak.json)

WORLDS ?= 300
.PHONY: worlds
worlds: dependencies-test ## The engine, and the delivery simulation over it, on a simulated Redis, WORLDS=300 seeds from SEED=1 on; part of soak.
	swift build --build-tests
	LONGWIRE_REDIS_SEED=$(SEED) LONGWIRE_REDIS_SEEDS=$(WORLDS) swift test --skip-build --filter 'RedisWorldTests|RedisSimulationTests'

.PHONY: rounds
rounds: dependencies-test ## The crash rounds' half of soak alone; figures go to .build/proof/rounds.json.
	$(release) --product longwired
	mkdir -p .build/proof
	LONGWIRE_BIN="$(CURDIR)/.build/release" $(python) Tests/Integration/rigs/rounds.py --rounds $(ROUNDS) --seconds-per-round 5 \
		--seed $(SEED) --json .build/proof/rounds.json

.PHONY: cluster-rounds
cluster-rounds: dependencies-test ## The crash rounds on Redis, with one gateway and with three; figures go to .build/proof/cluster.json.
	$(release) --product longwired
	mkdir -p .build/proof
	LONGWIRE_BIN="$(CURDIR)/.build/release" $(python) Tests/Integration/rigs/rounds.py --rounds $(CLUSTER_ROUNDS) --seconds-per-round 5 \
		--seed $(SEED) --store redis --json .build/proof/cluster-one.json
	LONGWIRE_BIN="$(CURDIR)/.build/release" $(python) Tests/Integration/rigs/cluster_rounds.py --rounds $(CLUSTER_ROUNDS) --seed $(SEED) \
		--beside .build/proof/cluster-one.json --json .build/proof/cluster.json

.PHONY: power
power: dependencies-test ## The power failures' part of soak alone; figures go to .build/proof/power.json.
	$(release) --product longwired
	mkdir -p .build/proof
	LONGWIRE_BIN="$(CURDIR)/.build/release" $(python) Tests/Integration/rigs/power.py --cuts $(CUTS) --seed $(SEED) \
		--json .build/proof/power.json

.PHONY: upgrade
upgrade: dependencies-test ## The last release's gateway, this one, and the last one again on one folder; PREVIOUS=REF (the last tag) is built in .build/previous.
	$(release) --product longwired
	$(release) --product longwire
	previous=$$(Tests/Integration/rigs/previous.sh $(PREVIOUS)) && LONGWIRE_PREVIOUS_BIN="$$previous" LONGWIRE_BIN="$(CURDIR)/.build/release" \
		$(python) -m pytest -q Tests/Integration/cases/test_upgrade.py

.PHONY: proof
proof: ## Runs soak, the planted faults, fuzz and sanitize, and writes their tables into docs/results/Measurements.md: about three hours.
	$(MAKE) soak SECONDS=600
	swift build --build-tests
	LONGWIRE_PLANTED_REPORT="$(CURDIR)/.build/proof/planted.json" swift test --skip-build --filter PlantedFaultTests
	$(MAKE) sanitize
	$(MAKE) fuzz SECONDS=600
	$(MAKE) roam
	Tests/Checks/Proof/table.py

.PHONY: peers
peers: dependencies-build ## Measures Longwire beside nginx, mosquitto, redis-server and bare programs: RUNS=3, about twenty minutes. FULL=1
	deploy/install-dependencies.sh bench
	mkdir -p .build/proof
	Tests/Benchmarks/peers.py --runs $(RUNS) $(if $(FULL),--full) $(if $(ONLY),--only $(ONLY)) \
		--json $(if $(JSON),$(JSON),.build/proof/peers.json) --markdown .build/proof/peers.md

.PHONY: client-java
client-java: ## Builds and tests the clients in Java and for Android with a JDK and JUnit (Clients/java/README.md).
	deploy/install-dependencies.sh java
	Clients/java/build.sh

.PHONY: clean
clean: ## Removes everything that was built; the data folder stays.
	rm -rf .build Clients/java/build

.PHONY: dependencies-build dependencies-test
dependencies-build:
	@deploy/install-dependencies.sh build
dependencies-test:
	@deploy/install-dependencies.sh build test
