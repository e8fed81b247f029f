#!/usr/bin/env bash
# Checks the types of the client's modules as in an Apple build: for macOS 13, whose standard library is that of iOS 16, without
# OpenSSL, libevent, RocksDB, simdjson and curl. No Apple SDK is needed. The toolchain's own interface of the standard library has
# the version of each declaration. Tests/Support/AppleStubs declares the parts of Darwin, Foundation, CryptoKit, Network and
# Security that the client uses. The check finds declarations that are too new, missing, or of another type in the stubs. It does
# not replace a build on a Mac.
#
#   Tests/Checks/check-client.sh               checks Sources/Core/Wire, Sources/Client/LongwireClient and Examples/iOS
#   Tests/Checks/check-client.sh --self-test   shows that it would notice a breach
set -euo pipefail
cd "$(dirname "$0")/../.."

target=x86_64-apple-macosx13.0
# The maximum number of lines, without blank lines and comments, of each platform's part of
# Sources/Client/LongwireClient/ClientTransport.swift.
side_limit=200

toolchain=$(swiftc -print-target-info)
resources=$(sed -n 's/.*"runtimeResourcePath": "\(.*\)".*/\1/p' <<<"$toolchain")
version=$(sed -n 's/.*"compilerVersion": "\(.*\)".*/\1/p' <<<"$toolchain" | cksum | cut -d' ' -f1)
folder=.build/client-check/$version
seen=(-target "$target" -resource-dir "$folder/resources" -module-cache-path "$folder/cache" -I "$folder/modules"
    -Xfrontend -disable-objc-interop -Xfrontend -disable-implicit-string-processing-module-import)
flags=(-swift-version 6 "${seen[@]}")
for feature in ExistentialAny InferIsolatedConformances InternalImportsByDefault MemberImportVisibility \
    NonisolatedNonsendingByDefault; do
    flags+=(-enable-upcoming-feature "$feature")
done
library=(-package-name longwire -parse-as-library)

# Prepares the standard library's interface for the target.
prepare() {
    local module interface text
    mkdir -p "$folder/resources/macosx" "$folder/modules"
    for part in shims clang apinotes; do ln -sfn "$resources/$part" "$folder/resources/$part"; done
    for module in Swift _Concurrency; do
        interface=$folder/resources/macosx/$module.swiftmodule/x86_64-apple-macos.swiftinterface
        [ -f "$interface" ] && continue
        mkdir -p "$(dirname "$interface")"
        text=$(sed -E -e "s/-target [a-z0-9_]+-unknown-linux-gnu/-target $target/" -e 's/^ *@backDeployed\([^)]*\)//' \
            "$resources"/linux/"$module".swiftmodule/x86_64-unknown-linux-gnu.swiftinterface)
        # The standard library's newer parts use each other without availability checks on this platform.
        [ "$module" = Swift ] || text=${text/-swift-version/-disable-availability-checking -swift-version}
        printf '%s\n' "$text" >"$interface.new"
        mv "$interface.new" "$interface"
    done
    # The module that a debug build links; empty here.
    [ -f "$folder/modules/SwiftOnoneSupport.swiftmodule" ] || emit SwiftOnoneSupport -O Tests/Support/AppleStubs/SwiftOnoneSupport.swift
    for module in Darwin Dispatch Foundation Security CryptoKit Network UserNotifications UIKit; do
        emit "$module" "Tests/Support/AppleStubs/$module.swift" || return 1
    done
}

# Builds the module $1 from the files in the other arguments.
emit() {
    local module=$1
    shift
    swiftc -emit-module "${flags[@]}" "${library[@]}" -module-name "$module" -emit-module-path \
        "$folder/modules/$module.swiftmodule" "$@"
}

# Prints the errors of Wire in the folder $1 and LongwireClient in $2; fails if there are any.
check() {
    local side count file plain
    for side in Apple Linux; do
        count=$(cat "$2/$side"/*.swift | grep -cvE '^ *(//.*)?$')
        [ "$count" -le "$side_limit" ] && continue
        echo "$2/$side has $count lines; the seam's sides are at most $side_limit"
        return 1
    done
    mapfile -t wire < <(find "$1" -name '*.swift')
    mapfile -t client < <(find "$2" -name '*.swift' -not -path '*/ObjectiveC/*')
    # The toolchain has no Objective-C, so types are checked without `@objc`, and optional methods as required ones.
    for file in "$2"/ObjectiveC/*.swift; do
        swiftc -frontend -parse -enable-objc-interop "$file" || return 1
        plain=$folder/$(basename "$file")
        sed -E -e 's/^#if canImport\(ObjectiveC\)/#if true/' -e 's/@objc(\([A-Za-z:]*\))? ?//' -e 's/optional func/func/' \
            -e 's/(longwireClient)\?\(/\1(/' "$file" >"$plain"
        client+=("$plain")
    done
    emit Wire "${wire[@]}" || return 1
    emit LongwireClient "${client[@]}" || return 1
    # An app of another package, with the language's defaults.
    for example in "AppDelegate SceneDelegate" NotificationService; do
        # shellcheck disable=SC2086
        swiftc -typecheck -swift-version 6 "${seen[@]}" -parse-as-library -module-name App \
            $(printf 'Examples/iOS/%s.swift ' $example) Tests/Support/AppleStubs/Example/App.swift || return 1
    done
}

# Checks the Objective-C example in the folder $1 against stub headers with the toolchain's clang. The stub of the client's
# header is written by hand, so this function also checks that it has each selector of the sources in $2.
check_objective_c() {
    local stubs=Tests/Support/AppleStubs/ObjectiveC file label
    for file in "$1"/*.m; do
        "$(dirname "$(command -v swiftc)")/clang" -fsyntax-only -x objective-c -target "$target" -fobjc-runtime=macosx \
            -fobjc-arc -fblocks -fmodules -fmodules-cache-path="$folder/cache" -fmodule-map-file="$stubs/module.modulemap" \
            -I "$1" -nostdinc -Wall -Wextra -Wno-unused-parameter -Werror "$file" || return 1
    done
    for label in $(grep -hoE '@objc\([A-Za-z:]+\)' "$2"/*.swift | sed -E 's/@objc\(|\)//g; s/([A-Za-z]+:)/\1 /g'); do
        grep -qE "\\b$label" "$stubs/LongwireClient-Swift.h" && continue
        echo "$stubs/LongwireClient-Swift.h has no $label of $2"
        return 1
    done
}

self_test() {
    local copy breach
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' RETURN
    cp -R Sources/Core/Wire Sources/Client/LongwireClient "$copy/"
    check "$copy/Wire" "$copy/LongwireClient" >/dev/null 2>&1 || { echo "check-client: clean sources were refused" >&2; return 1; }
    rm -rf "${copy:?}"/*
    for breach in 'internal import Cryptography' 'internal import COpenSSL' 'internal import Glibc' \
        'let tooNew = InlineArray<2, Int>(repeating: 0)' 'let noSuch = NWConnection.noSuch' "$(yes 'let a = 1' | head -n 201)"; do
        cp -R Sources/Core/Wire Sources/Client/LongwireClient "$copy/"
        printf '%s\n' "$breach" >"$copy/LongwireClient/Apple/Breach.swift"
        if check "$copy/Wire" "$copy/LongwireClient" >/dev/null 2>&1; then
            echo "check-client: this went unnoticed: ${breach%%$'\n'*}" >&2
            return 1
        fi
        rm -rf "${copy:?}"/*
    done
    cp -R Sources/Core/Wire Sources/Client/LongwireClient "$copy/"
    printf '#if canImport(ObjectiveC)\n@objc(LWBreach) public final class LWBreach: NoSuch {}\n#endif\n' \
        >"$copy/LongwireClient/ObjectiveC/Breach.swift"
    if check "$copy/Wire" "$copy/LongwireClient" >/dev/null 2>&1; then
        echo "check-client: a wrong type in the Objective-C interface went unnoticed" >&2
        return 1
    fi
    rm -rf "${copy:?}"/*
    cp Examples/iOS/ObjectiveC/* "$copy/"
    printf '@import LongwireClient;\nvoid f(LWClient *c) { [c noSuchSelector]; }\n' >"$copy/Breach.m"
    if check_objective_c "$copy" Sources/Client/LongwireClient/ObjectiveC >/dev/null 2>&1; then
        echo "check-client: a wrong selector in the Objective-C example went unnoticed" >&2
        return 1
    fi
    echo "check-client: the self-test passed"
}

case "${1:-}" in
--self-test)
    prepare
    self_test
    ;;
"")
    prepare
    check Sources/Core/Wire Sources/Client/LongwireClient
    check_objective_c Examples/iOS/ObjectiveC Sources/Client/LongwireClient/ObjectiveC
    echo "check-client: the client builds for Apple's systems, as far as the stubs tell"
    ;;
*) echo "check-client: unknown argument $1" >&2; exit 64 ;;
esac
