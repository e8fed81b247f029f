#!/usr/bin/env bash
# Checks that the sources use one clock. Stored and due times are in gateway time (docs/Architecture.md, "Clocks"), so that a
# wrong wall clock deletes nothing. Only Platform reads the wall clock, and only Gateway/Clock calls Platform for it.
# Gateway/Clock passes wall times only to log lines and other programs. The client programs have no gateway time.
#
#   Tests/Checks/check-clocks.sh               checks Sources/
#   Tests/Checks/check-clocks.sh --self-test   shows that it would notice a breach
set -euo pipefail
cd "$(dirname "$0")/../.."

# Words that read the wall clock, and the paths that may use them.
names='clock_gettime|gettimeofday|CLOCK_REALTIME[A-Z_]*|CLOCK_TAI|timespec_get|std::time|system_clock|localtime(_r)?|ftime'
names="$names|(Date|NSDate)[ ]*\\(|Date[.](now|init)|time[ ]*\\([ ]*(nil|NULL|0|nullptr|&)|CFAbsoluteTimeGetCurrent"
may_name='^([^/:]+/)?(Platform/SystemClock[.]swift|LongwireClient/System[.]swift|LoadGenerator/Measuring/[A-Za-z]+[.]swift|FakeAPNs/FakePage[.]swift|CommandLineTool/[A-Za-z+]+[.]swift):'
may_wrap='^([^/:]+/)?(Platform/SystemClock[.]swift|Gateway/Clock/[A-Za-z]+[.]swift|LoadGenerator/.*|CommandLineTool/Store/[A-Za-z]+[.]swift|PushSender/([A-Za-z]+/)?[A-Za-z0-9+]+[.]swift|FakeAPNs/[A-Za-z]+[.]swift|FakeVendors/FakeVendors[.]swift):'
may_show='^([^/:]+/)?(Gateway/Clock/[A-Za-z]+[.]swift|Gateway/Logging/Log[.]swift|Gateway/Outbound/(HookDispatcher|FeedPoster)[.]swift|Gateway/Lifecycle/(Gateway|StartWait)[.]swift):'

# Prints each breach under the folder $1; fails if there are any.
check() {
    local lines breaches
    # Comments may use these words.
    lines=$(cd "$1" && grep -rnE --include='*.swift' --include='*.h' --include='*.c' --include='*.cpp' --include='*.hpp' \
        "(^|[^A-Za-z0-9_.])($names)|wallMilliseconds|ClockReader[.]wall" . | sed 's|^[.]/||' |
        grep -vE '^[^:]*:[0-9]+:[ ]*//' || true)
    breaches=$({
        grep -E "(^|[^A-Za-z0-9_.])($names)" <<<"$lines" | grep -vE "$may_name" || true
        grep -E 'wallMilliseconds' <<<"$lines" | grep -vE "$may_wrap" || true
        grep -E 'ClockReader[.]wall' <<<"$lines" | grep -vE "$may_show" || true
    } | LC_ALL=C sort -u)
    [ -z "$breaches" ] && return 0
    sed 's|$|   <- reads the wall clock; use gateway time|' <<<"$breaches"
    return 1
}

self_test() {
    local folder breach
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder/Platform" "$folder/Gateway/Clock" "$folder/Gateway/Handlers" "$folder/Gateway/Logging" \
        "$folder/MessageStore" "$folder/CSystem" "$folder/LongwireClient"
    echo 'clock_gettime(CLOCK_REALTIME, &time)' >"$folder/Platform/SystemClock.swift"
    echo 'wall: Int64(SystemClock.wallMilliseconds)' >"$folder/Gateway/Clock/ClockReader.swift"
    echo 'let time = ClockReader.wall()' >"$folder/Gateway/Logging/Log.swift"
    echo 'milliseconds(of: CLOCK_REALTIME)' >"$folder/LongwireClient/System.swift"
    echo '/// No Date(), no time(nil); HTTPDate(bytes) and mapping.time(atBoot: 0) are fine.' >"$folder/MessageStore/Good.swift"
    echo 'let date = HTTPDate(bytes: text); wall.time(at: 0); civilDate(now)' >>"$folder/MessageStore/Good.swift"
    check "$folder" || { echo "check-clocks: what is allowed was refused" >&2; return 1; }
    for breach in 'MessageStore/Bad.swift:{ Int64(SystemClock.wallMilliseconds) }' 'Platform/Bad.swift:let now = Date()' \
        'MessageStore/Bad.swift:let now = Date().timeIntervalSince1970' 'MessageStore/Bad.swift:let now = time(nil)' \
        'Gateway/Handlers/Bad.swift:clock_gettime(CLOCK_REALTIME, &value)' 'Gateway/Handlers/Bad.swift:Date.now' \
        'CSystem/bad.h:gettimeofday(&value, 0);' 'CSystem/bad.c:return time(NULL);' \
        'Gateway/Handlers/Bad.swift:let now = ClockReader.wall()' 'Gateway/Clock/Bad.swift:read(CLOCK_REALTIME)'; do
        echo "${breach#*:}" >"$folder/${breach%%:*}"
        if check "$folder" >/dev/null; then
            echo "check-clocks: this went unnoticed: ${breach#*:} in ${breach%%:*}" >&2
            return 1
        fi
        rm "$folder/${breach%%:*}"
    done
    rm -rf "$folder"
    trap - EXIT
    echo "check-clocks: the self-test passed"
}

case "${1:-}" in
--self-test) self_test ;;
"") check Sources && echo "check-clocks: one clock" ;;
*) echo "check-clocks: unknown argument $1" >&2; exit 64 ;;
esac
