#!/usr/bin/env bash
# Runs the Swift tests that are built, within LONGWIRE_TEST_SECONDS (1,500), and says at the end what failed, or which
# tests had not ended when the time was over. The whole output goes to .build/swift-tests.log, too.
set -uo pipefail
cd "$(dirname "$0")/../.."

seconds="${LONGWIRE_TEST_SECONDS:-1500}"
log=.build/swift-tests.log

# A session of its own: what the tests have started is found again and ends with them. Lines come as they are written, so
# that what had begun is known.
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
