#!/usr/bin/env bash
# Checks that only Sources/Core/Delivery/Accepting/Strategy.swift names a strategy in code. No other file can therefore compare
# with one or switch over them, and the compiler lists in that file each decision that a new strategy needs. The parser of
# `settings` maps numbers to strategies, so it names them, too.
#
#   Tests/Checks/check-strategies.sh               checks Sources/
#   Tests/Checks/check-strategies.sh --self-test   shows that it would notice a breach
set -euo pipefail
cd "$(dirname "$0")/../.."

names='liveElseVendor|vendorOnly|liveOnly|vendorElseLive'
table='^Core/Delivery/Accepting/Strategy[.]swift:'
# The parser may only return a strategy: `case 2: return .vendorOnly`.
parser='^Gateway/PushAPI/PushSettings[.]swift:[0-9]+: *case [0-9, ]+: return [.]('"$names"')( *//.*)?$'

# Prints each breach under the folder $1; fails if there are any.
check() {
    local breaches
    breaches=$({
        # Comments may name strategies.
        (cd "$1" && grep -rnE --include='*.swift' "(^|[^A-Za-z0-9_])($names)([^A-Za-z0-9_]|$)" . || true) | sed 's|^[.]/||' |
            grep -vE '^[^:]*:[0-9]+: *//' | grep -vE "$table" | grep -vE "$parser" |
            sed 's|$|   <- names a strategy; ask Strategy.swift|' || true
        # A comparison of a strategy's number is also a breach.
        (cd "$1" && grep -rnE --include='*.swift' "strategy[.]rawValue *([!=]=|[<>]=?) " . || true) |
            sed 's|^[.]/||; s|$|   <- compares the number of a strategy|'
        grep -nE "^ *(@unknown +)?default *:" "$1/Core/Delivery/Accepting/Strategy.swift" |
            sed 's|^|Core/Delivery/Accepting/Strategy.swift:|; s|$|   <- name the strategies|' || true
    } | LC_ALL=C sort -u)
    [ -z "$breaches" ] && return 0
    printf '%s\n' "$breaches"
    return 1
}

self_test() {
    local folder breach
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder/Core/Delivery/Accepting" "$folder/Core/Delivery/Handoff" "$folder/Gateway/PushAPI"
    local table_file="$folder/Core/Delivery/Accepting/Strategy.swift"
    local parser_file="$folder/Gateway/PushAPI/PushSettings.swift"
    echo 'case .liveOnly: true' >"$table_file"
    echo '        case 1, 6: return .liveElseVendor  // 6 is a choice among vendors' >"$parser_file"
    echo '// strategy == .liveOnly; facts.planted(.liveOnlyReachesVendor)' >"$folder/Core/Delivery/Handoff/Good.swift"
    echo 'let next = strategy.vendorFailed(part); isPlanted(.liveOnlyReachesVendor)' >>"$folder/Core/Delivery/Handoff/Good.swift"
    check "$folder" || { echo "check-strategies: what is allowed was refused" >&2; return 1; }
    for breach in 'Core/Delivery/Handoff/Bad.swift:if facts.strategy == .vendorElseLive {' \
        'Core/Delivery/Handoff/Bad.swift:guard Strategy.liveOnly != strategy else {' \
        'Core/Delivery/Handoff/Bad.swift:case .vendorOnly, .vendorElseLive:' \
        'Core/Delivery/Handoff/Bad.swift:if strategy.rawValue == 2 {' 'Core/Delivery/Handoff/Bad.swift:if strategy.rawValue > 2 {' \
        'Core/Delivery/Accepting/Strategy.swift:        default: false' \
        'Gateway/PushAPI/PushSettings.swift:if strategy == .vendorOnly { throw Fault() }'; do
        cp "$table_file" "$folder/table" && cp "$parser_file" "$folder/parser"
        echo "${breach#*:}" >>"$folder/${breach%%:*}"
        if check "$folder" >/dev/null; then
            echo "check-strategies: this went unnoticed: ${breach#*:} in ${breach%%:*}" >&2
            return 1
        fi
        rm -f "$folder/Core/Delivery/Handoff/Bad.swift"
        mv "$folder/table" "$table_file" && mv "$folder/parser" "$parser_file"
    done
    rm -rf "$folder"
    trap - EXIT
    echo "check-strategies: the self-test passed"
}

case "${1:-}" in
--self-test) self_test ;;
"") check Sources && echo "check-strategies: one table of decisions" ;;
*) echo "check-strategies: unknown argument $1" >&2; exit 64 ;;
esac
