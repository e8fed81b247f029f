#!/usr/bin/env bash
# Builds the documentation of LongwireClient with DocC. A broken link or a malformed comment fails.
#
#   Tests/Checks/check-documentation.sh [MODULES]   the folder of built modules; .build/debug/Modules by default
#   Tests/Checks/check-documentation.sh --self-test [MODULES]   shows that a broken link is found
set -euo pipefail
cd "$(dirname "$0")/../.."

self_test=false
if [ "${1:-}" = --self-test ]; then
    self_test=true
    shift
fi
modules=${1:-.build/debug/Modules}
catalog=Sources/Client/LongwireClient/LongwireClient.docc
swift=$(readlink -f "$(command -v swift)")
docc=$(dirname "$swift")/docc
target=$(swift -print-target-info | sed -n 's/^ *"triple": "\(.*\)",$/\1/p' | head -1)
folder=$(mktemp -d "${TMPDIR:-/tmp}/longwire-documentation-XXXXXX")
trap 'rm -rf "$folder"' EXIT

[ -x "$docc" ] || { echo "check-documentation: $docc is missing; it is part of the Swift toolchain" >&2; exit 1; }
[ -e "$modules/LongwireClient.swiftmodule" ] || { echo "check-documentation: build first; $modules has no LongwireClient" >&2; exit 1; }

mkdir "$folder/graphs"
swift symbolgraph-extract -module-name LongwireClient -I "$modules" -target "$target" -minimum-access-level public \
    -Xcc "-fmodule-map-file=Sources/Adapters/C/COpenSSL/module.modulemap" -output-dir "$folder/graphs"
convert() {
    "$docc" convert "$1" --additional-symbol-graph-dir "$folder/graphs" --fallback-display-name LongwireClient \
        --fallback-bundle-identifier LongwireClient --output-path "$folder/out" --warnings-as-errors
}

if $self_test; then
    cp -r "$catalog" "$folder/broken.docc"
    printf '\nSee ``LongwireClient/noSuchThing``.\n' >> "$folder/broken.docc/LongwireClient.md"
    if convert "$folder/broken.docc" > "$folder/log" 2>&1 || ! grep -q noSuchThing "$folder/log"; then
        echo "check-documentation: a broken link went unnoticed" >&2
        exit 1
    fi
    echo "check-documentation: a broken link is found"
    exit 0
fi
convert "$catalog" > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
echo "check-documentation: every link of LongwireClient leads somewhere"
