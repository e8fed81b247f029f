#!/usr/bin/env bash
# Builds the programs of an earlier commit into .build/previous, for test_upgrade.py.
#
#   Tests/Integration/rigs/previous.sh [REF]   a tag or commit; by default the last tag, or without a tag the commit before HEAD
#
# Prints the folder of the programs. An existing build of the same commit is reused.
set -euo pipefail
cd "$(dirname "$0")/../../.."
ref=${1:-$(git describe --tags --abbrev=0 2>/dev/null || echo HEAD~1)}
commit=$(git rev-parse --verify --quiet "$ref^{commit}") || {
    echo "previous: there is no commit $ref here; name a tag or a commit: make upgrade PREVIOUS=REF" >&2
    # A pipeline's clone often has only its last commit.
    [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" != true ] ||
        echo "previous: this clone has no history: git fetch --unshallow --tags" >&2
    exit 1
}
place=$PWD/.build/previous
if [ "$(cat "$place/commit" 2>/dev/null)" != "$commit" ]; then
    rm -rf "$place/source"
    rm -f "$place/commit"
    mkdir -p "$place/source"
    # Files only, because a worktree would leave a mark in the repository.
    git archive "$commit" | tar -x -C "$place/source"
    for product in longwired longwire; do
        swift build -c release --package-path "$place/source" --scratch-path "$place/build" --product "$product" >&2
    done
    echo "$commit" >"$place/commit"
fi
echo "$place/build/release"
