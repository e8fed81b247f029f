#!/usr/bin/env bash
# Builds and runs the Swift tests, then the gateway itself with a part of the integration tests, under the thread sanitizer and
# under the address sanitizer with its leak check.
#
#   Tests/Checks/Sanitizers/sanitize.sh [--only thread|address] [--json FILE]
#
# Exits with 1 if a test fails or a sanitizer reports anything. Reports are in .build/tsan/reports and .build/asan/reports. The
# figures are written to .build/proof/sanitize.json, or to FILE.
set -euo pipefail
cd "$(dirname "$0")/../../.."

only="" json=.build/proof/sanitize.json
while (($#)); do
    case "$1" in
    --only) only=$2; shift 2 ;;
    --json) json=$2; shift 2 ;;
    *) echo "sanitize: unknown argument $1" >&2; exit 64 ;;
    esac
done

here=$PWD/Tests/Checks/Sanitizers
python=.build/python/bin/python
# The crash handler would outlive the processes that exit tests end deliberately.
export SWIFT_BACKTRACE=enable=no
failed=0 parts=()

# Runs "$@", shows the output and keeps it in $log.
run() {
    local code=0
    "$@" >"$log" 2>&1 || code=$?
    tail -n 3 "$log"
    ((code == 0)) || { grep -E '✘|^FAILED|error:' "$log" | head -n 20 || true; failed=1; }
}

# Counts matches of pattern $1 in the report files.
count() { cat "$reports"/* 2>/dev/null | grep -cE "$1" || true; }

# $1 is thread or address, $2 the scratch folder. All other arguments are for the test run.
sanitize() {
    local name=$1 scratch=$2 tests passed figures
    shift 2
    reports=$PWD/$scratch/reports log=$scratch/tests.log
    rm -rf "$reports"
    mkdir -p "$reports"
    nice swift build --build-tests --sanitize="$name" --scratch-path "$scratch"
    export TSAN_OPTIONS="suppressions=$here/thread.supp:log_path=$reports/report:halt_on_error=0:exitcode=66"
    export ASAN_OPTIONS="suppressions=$here/address.supp:detect_leaks=1:log_path=$reports/report:exitcode=66"
    # One test process after another, so that a slow sanitized build does not exceed the bounds that end failed tests.
    LSAN_OPTIONS="suppressions=$here/tests-leak.supp:print_suppressions=0" \
        run nice swift test --skip-build --sanitize="$name" --scratch-path "$scratch" --no-parallel "$@"
    tests=$(sed -n 's/.*Test run with \([0-9]*\) tests.*/\1/p' "$log" | tail -n 1)
    if [[ $name == address ]]; then
        log=$scratch/gateway.log
        run nice swift test --skip-build --sanitize="$name" --scratch-path "$scratch" --no-parallel "$@" --filter GatewayTests
    fi
    log=$scratch/integration.log
    LSAN_OPTIONS="suppressions=$here/leak.supp:print_suppressions=0" LONGWIRE_BIN=$PWD/$scratch/debug run nice "$python" -m pytest -q Tests/Integration -k 'story or delivery or handoff'
    passed=$(sed -n 's/^\([0-9]*\) passed.*/\1/p;s/.*, \([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
    figures="\"tests\":${tests:-0},\"integration\":${passed:-0}"
    if [[ $name == thread ]]; then
        figures+=",\"reports\":$(count 'WARNING: ThreadSanitizer')"
    else
        figures+=",\"reports\":$(count 'ERROR: AddressSanitizer'),\"leaks\":$(count '^(Direct|Indirect) leak of')"
    fi
    if [[ -n $(ls "$reports") ]]; then
        echo "$name: reports in $reports"
        cat "$reports"/* | grep -hE '^SUMMARY' | sort | uniq -c | sort -rn | head -n 20 || true
        failed=1
    fi
    [[ ${tests:-0} != 0 && ${passed:-0} != 0 ]] || failed=1
    parts+=("\"$name\":{$figures}")
    echo "$name: {$figures}"
}

[[ $only == address ]] || sanitize thread .build/tsan
# The XCTest runner itself leaks, and no test here uses it.
[[ $only == thread ]] || sanitize address .build/asan --disable-xctest
mkdir -p "$(dirname "$json")"
(IFS=,; printf '{%s}\n' "${parts[*]}") >"$json"
exit "$failed"
