#!/usr/bin/env bash
# Checks every module's imports against docs/Architecture.md. Only a wrapper imports its C module. The pure modules import nothing
# that can block, read a clock or use a socket.
#
#   Tests/Checks/check-imports.sh               checks Sources/, and that of Tests/ only test targets use @testable
#   Tests/Checks/check-imports.sh --self-test   shows that it would notice a breach
set -euo pipefail
cd "$(dirname "$0")/../.."

# module: its allowed imports. A folder below a module (Gateway/Outbound) extends its module's list.
rules='
Structures:
Wire:
TextForms:
Delivery: Structures Wire
APNs: JSON TextForms
Directory: Delivery Structures Wire
Quotas: Delivery Wire
Cluster:
Platform: CSystem Glibc Synchronization
Cryptography: COpenSSL Glibc
Console: CConsole
JSON: CSimdjson TextForms
Webhooks: Cryptography TextForms
Configuration: Glibc Platform TextForms
EventLoops: CLibevent Cryptography Glibc Platform Structures Synchronization TextForms
HTTPClient: CCurl Glibc Synchronization
HTTP2: CNghttp2 Cryptography EventLoops Platform
Redis: CHiredis Cryptography Glibc Platform Synchronization
Journal: Glibc Platform Structures Synchronization
MessageStore: CRocksDB Cryptography Delivery Glibc Journal Platform Redis Structures Synchronization Wire
PushAPI: APNs Cryptography Delivery Directory JSON Quotas Structures TextForms Webhooks Wire
Gateway: APNs Cluster Configuration Console Cryptography Delivery Directory EventLoops FoundationEssentials Glibc JSON Journal MessageStore Platform PushAPI Quotas Structures Synchronization TextForms Webhooks Wire
Gateway/Cluster: Redis
Gateway/Outbound: HTTPClient
PushSender: APNs Configuration Cryptography EventLoops FakeAPNs FakeVendors Glibc HTTP2 HTTPClient JSON Platform Structures Synchronization TextForms Vendors Webhooks
Vendors: Cryptography JSON TextForms Wire
FakeAPNs: APNs Configuration Cryptography EventLoops FakeVendors HTTP2 JSON Platform TextForms
FakeVendors: Configuration Cryptography EventLoops JSON Platform TextForms
LongwireClient: Darwin Glibc Musl Wire
LongwireClient/Apple: CryptoKit Dispatch Foundation Network Security UserNotifications
LongwireClient/ObjectiveC: Foundation UserNotifications
LongwireClient/Linux: Cryptography
CommandLineTool: Cryptography Foundation FoundationEssentials Glibc HTTPClient LongwireClient Synchronization TextForms Wire
CommandLineTool/Store: Delivery MessageStore Platform Redis
LoadGenerator: Cryptography FoundationEssentials Glibc Platform Synchronization TextForms Wire
longwire-sender: PushSender Glibc
longwired: Gateway Glibc
longwire: CommandLineTool Glibc LoadGenerator TextForms
'

# A C module has one wrapper: no two lines of the rules $1 may name it.
check_wrappers() {
    awk -F: 'NF > 1 {
        names = split($2, words, " ")
        for (i = 1; i <= names; i++) if (words[i] ~ /^C[A-Z]/) count[words[i]]++
    }
    END {
        for (name in count) if (count[name] > 1) {
            print name " may be imported by " count[name] " modules; a C module has one wrapper"
            breaches = 1
        }
        exit breaches
    }' <<<"$1"
}

# Prints each breach under the folder $1; fails if there are any.
check() {
    find "$1" -name '*.swift' | LC_ALL=C sort | xargs --no-run-if-empty awk -v root="$1/" -v rules="$rules" '
        BEGIN {
            count = split(rules, lines, "\n")
            for (i = 1; i <= count; i++) {
                if (split(lines[i], parts, ":") < 2) continue
                known[parts[1]] = 1
                names = split(parts[2], words, " ")
                for (j = 1; j <= names; j++) allowed[parts[1], words[j]] = 1
            }
        }
        FNR == 1 {
            path = substr(FILENAME, length(root) + 1)
            split(path, folders, "/")
            # The first folder is a group of modules.
            module = folders[2]
            inner = module "/" folders[3]
            if (!(module in known)) {
                print FILENAME ": " module " has no line in Tests/Checks/check-imports.sh"
                breaches = 1
                known[module] = 1
            }
        }
        # An import may have attributes, an access level and a kind: @testable public import struct A.B
        /^[ \t]*(@[A-Za-z_]+(\([^)]*\))?[ \t]+)*((public|package|internal|fileprivate|private)[ \t]+)?import[ \t]/ {
            text = $0
            sub(/^.*import[ \t]+/, "", text)
            sub(/^(typealias|struct|class|enum|protocol|let|var|func)[ \t]+/, "", text)
            sub(/[^A-Za-z0-9_].*$/, "", text)
            if (!((module, text) in allowed) && !((inner, text) in allowed)) {
                print FILENAME ":" FNR ": " module " may not import " text
                breaches = 1
            }
        }
        END { exit breaches }'
}

# Only test targets may use @testable, because release builds such as the fuzzer's cannot. Prints each breach below $1.
check_testable() {
    local breaches
    # A test target's folder has a name that ends with "Tests" and is below $1, or one or two folders deeper.
    breaches=$(cd "$1" && find . -name '*.swift' | LC_ALL=C sort | grep -Ev '^\./([^/]+/){0,2}[^/]+Tests/' |
        xargs --no-run-if-empty grep -n '^@testable' /dev/null || true)
    [[ -z $breaches ]] || { echo "$breaches: @testable does not compile in release"; return 1; }
}

self_test() {
    local folder breach
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder/Core/Wire" "$folder/Core/Delivery" "$folder/Adapters/EventLoops" "$folder/Gateway/Gateway/Outbound"
    echo 'public import Wire' >"$folder/Core/Delivery/Good.swift"
    echo 'internal import CLibevent' >"$folder/Adapters/EventLoops/Good.swift"
    echo 'internal import HTTPClient' >"$folder/Gateway/Gateway/Outbound/Good.swift"
    echo '// import Foundation' >"$folder/Core/Wire/Good.swift"
    check "$folder" || { echo "check-imports: an allowed import was refused" >&2; return 1; }
    for breach in 'Core/Wire/Bad.swift:import Foundation' 'Core/Delivery/Bad.swift:internal import Glibc' \
        'Core/Delivery/Bad.swift:public import CRocksDB' 'Adapters/EventLoops/Bad.swift:package import Delivery' \
        'Gateway/Gateway/Outbound/Bad.swift:internal import CCurl' 'Gateway/Gateway/Bad.swift:internal import HTTPClient' 'Gateway/Gateway/Bad.swift:@preconcurrency import COpenSSL' \
        'Core/Wire/Bad.swift:import struct Foundation.Data' 'Core/Wire/Bad.swift:    @_implementationOnly import CSystem' \
        'Core/Unknown/Bad.swift:let number = 1'; do
        mkdir -p "$folder/$(dirname "${breach%%:*}")"
        echo "${breach#*:}" >"$folder/${breach%%:*}"
        if check "$folder" >/dev/null; then
            echo "check-imports: this went unnoticed: ${breach#*:} in ${breach%%:*}" >&2
            return 1
        fi
        rm "$folder/${breach%%:*}"
    done
    if check_wrappers "$rules"$'\nOther: CCurl' >/dev/null; then
        echo "check-imports: a second wrapper of CCurl went unnoticed" >&2
        return 1
    fi
    mkdir -p "$folder/tests/WireTests" "$folder/tests/Fuzz/FuzzReplayTests" "$folder/tests/Fuzz/FuzzTargets"
    echo '@testable import Wire' | tee "$folder/tests/WireTests/Good.swift" >"$folder/tests/Fuzz/FuzzReplayTests/Good.swift"
    check_testable "$folder/tests" || { echo "check-imports: a test's own import was refused" >&2; return 1; }
    echo '@testable import Wire' >"$folder/tests/Fuzz/FuzzTargets/Bad.swift"
    if check_testable "$folder/tests" >/dev/null; then
        echo "check-imports: @testable in what is built in release went unnoticed" >&2
        return 1
    fi
    rm -rf "$folder"
    trap - EXIT
    echo "check-imports: the self-test passed"
}

case "${1:-}" in
--self-test) self_test ;;
"") check_wrappers "$rules" && check Sources && check_testable Tests && echo "check-imports: every import is allowed" ;;
*) echo "check-imports: unknown argument $1" >&2; exit 64 ;;
esac
