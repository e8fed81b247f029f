#!/usr/bin/env bash
# Runs the built Swift tests within LONGWIRE_TEST_SECONDS (1,500), and finally prints the failures, or the tests that had not
# ended at the timeout. The whole output is also written to .build/swift-tests.log.
set -uo pipefail
cd "$(dirname "$0")/../.."

seconds="${LONGWIRE_TEST_SECONDS:-1500}"
log=.build/swift-tests.log

# A separate session, so that all processes of the tests are found and ended with them. Output is line-buffered, so that started
# tests are known.
setsid --wait stdbuf -oL swift test --skip-build "$@" > >(tee "$log") 2>&1 &
session=$!
trap 'pkill -KILL -s "$session"' EXIT
for ((waited = 0; waited < seconds; waited++)); do
    kill -0 "$session" 2>/dev/null || break
    sleep 1
done

status=0
if kill -0 "$session" 2>/dev/null; then
    printf '\nThe tests did not end within %d s. These had begun and not ended:\n' "$seconds"
    pkill -TERM -s "$session"
    sleep 1
    awk '/◇ Test .* started\.$/ { sub(/^.*◇ /, ""); sub(/ started\.$/, ""); begun[$0] = 1 }
        /[✔✘] Test .* (passed|failed) after/ {
            sub(/^.*[✔✘] /, ""); sub(/ (passed|failed) after.*$/, ""); sub(/ with [0-9]+ test cases?$/, "")
            delete begun[$0]
        }
        END { for (test in begun) if (test !~ /^Test (case|run)/) print "  " test }' "$log"
    exit 1
fi
wait "$session" || status=$?
if ((status != 0)); then
    printf '\nWhat failed, from %s:\n' "$log"
    grep -aE '✘|Fatal error|Precondition failed|Caught signal|signal code' "$log" | tail -40
fi
exit "$status"
