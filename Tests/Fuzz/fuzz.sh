#!/usr/bin/env bash
# Builds the fuzzer and runs every target, one after another.
#
#   Tests/Fuzz/fuzz.sh [--seconds N] [--target NAME] [--json FILE] [--update] [--replay NAME FILE]
#
#   --seconds N     the run time of each target; 60 by default
#   --target NAME   this target only
#   --json FILE     the output {"targets":[{"name","executions","requests","seconds","coverage","crashes"}]};
#                   requests only for targets whose inputs make many;
#                   .build/proof/fuzz.json by default, none by default with --target
#   --update        afterwards reduces the corpora to the inputs that reach the same coverage
#   --replay        runs only one input, a file; of a history (.hex) all inputs, one after another
#
# Prints the command that replays the input and exits with 1 if a target failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=60 only="" json="" update="" replay=()
while (($#)); do
    case "$1" in
    --seconds) seconds=$2; shift 2 ;;
    --target) only=$2; shift 2 ;;
    --json) json=$2; shift 2 ;;
    --update) update=yes; shift ;;
    --replay) replay=("$2" "$3"); shift 3 ;;
    *) echo "fuzz: unknown argument $1" >&2; exit 64 ;;
    esac
done

[[ -n $json || -n $only ]] || json=.build/proof/fuzz.json

scratch=.build/fuzz
work=$scratch/work
fuzzer=$scratch/release/longwire-fuzz
# The limit keeps a corpus readable, because every test run replays it.
corpus_bytes=100000

build() {
    local library
    library=$(swiftc -print-target-info | sed -n 's/.*"runtimeResourcePath": "\(.*\)".*/\1/p')
    library=$(find "$library/clang/lib/" -name "libclang_rt.fuzzer_no_main-$(uname -m).a" | head -n 1)
    [[ -n $library ]] || { echo "fuzz: this toolchain has no libFuzzer" >&2; exit 1; }
    # Every module is instrumented for coverage. The build is optimized, but keeps assertions.
    LONGWIRE_FUZZ=$library nice swift build -c release --scratch-path "$scratch" --product longwire-fuzz \
        --sanitize=address -Xcc -fsanitize=fuzzer-no-link -Xswiftc -assert-config -Xswiftc Debug \
        -Xswiftc -sanitize-coverage=edge,indirect-calls,trace-cmp,inline-8bit-counters,pc-table
}

# The trap also removes the folders of a gateway that crashed. Memory is faster than a disk.
folders=$(mktemp -d "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/longwire-fuzz.XXXXXX")
trap 'rm -rf "$folders"' EXIT
export TMPDIR=$folders
# Without this the Swift crash handler would handle the signal instead of libFuzzer.
export SWIFT_BACKTRACE=enable=no
# Swift stores the pointer to an object's first weak-reference table shifted, so the leak check cannot follow it.
export ASAN_OPTIONS=detect_leaks=0
build
if ((${#replay[@]})) && [[ ${replay[1]} == *.hex ]]; then
    LONGWIRE_FUZZ_TARGET=${replay[0]} "$fuzzer" --play "${replay[1]}"
    exit
fi
if ((${#replay[@]})); then
    LONGWIRE_FUZZ_TARGET=${replay[0]} "$fuzzer" "${replay[1]}"
    exit
fi

results=() failed=0
while read -r name limit timeout; do
    [[ -z $only || $only == "$name" ]] || continue
    corpus=Tests/Fuzz/corpora/$name.hex folder=$work/$name log=$work/$name.log
    rm -rf "$folder" "$work/$name-crashes"
    mkdir -p "$folder" "$work/$name-crashes"
    "$fuzzer" --unpack "$corpus" "$folder"
    arguments=(-max_total_time="$seconds" -max_len="$limit" -rss_limit_mb=3000 -timeout="$timeout" -print_final_stats=1
        -artifact_prefix="$work/$name-crashes/")
    dictionary=Tests/Fuzz/dictionaries/$name.dict
    [[ ! -f $dictionary ]] || arguments+=(-dict="$dictionary")
    # A failed target does not run again for the remaining time, because the first failure has to be fixed first.
    LONGWIRE_FUZZ_HISTORY=$work/$name-history.hex LONGWIRE_FUZZ_TARGET=$name nice -n 19 "$fuzzer" "${arguments[@]}" "$folder" >"$log" 2>&1 || true
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    requests=$(sed -n 's/^stat::requests: *//p' "$log" | tail -n 1)
    spent=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
    crashes=$(find "$work/$name-crashes" -type f | wc -l)
    printf '%-14s %12s executions %6s s %7s edges %3s crashes%s\n' \
        "$name" "${executions:-0}" "${spent:-?}" "${coverage:-0}" "$crashes" "${requests:+ $requests requests}"
    results+=("{\"name\":\"$name\",\"executions\":${executions:-0},${requests:+\"requests\":$requests,}\"seconds\":${spent:-0},\"coverage\":${coverage:-0},\"crashes\":$crashes}")
    if ((crashes > 0)) || [[ -z $spent ]]; then
        failed=1
        grep -m 5 -E 'Fatal error|ERROR|SUMMARY' "$log" || tail -n 5 "$log"
        for input in "$work/$name-crashes"/*; do
            [[ ! -f $input ]] || echo "    replay: Tests/Fuzz/fuzz.sh --replay $name $input"
        done
        [[ ! -s $work/$name-history.hex ]] || echo "    with what came before it: Tests/Fuzz/fuzz.sh --replay $name $work/$name-history.hex"
        echo "    as a corpus line: xxd -p -c 0 FILE >>$corpus"
    elif [[ -n $update ]]; then
        rm -rf "$folder-merged"
        mkdir "$folder-merged"
        LONGWIRE_FUZZ_TARGET=$name nice -n 19 "$fuzzer" -set_cover_merge=1 -max_len="$limit" -rss_limit_mb=3000 \
            "$folder-merged" "$folder" >>"$log" 2>&1
        # Hand-written inputs stay first, with their comments. The fuzzer's finds follow, small ones first.
        {
            sed '/^# Found by the fuzzer/,$d' "$corpus"
            echo '# Found by the fuzzer: what it takes to reach the coverage of the last run.'
            "$fuzzer" --pack "$folder-merged"
        } | awk -v limit="$corpus_bytes" '/^#/ || !seen[$0]++ { total += length($0) + 1; if (total <= limit) print }' \
            >"$work/$name.hex"
        mv "$work/$name.hex" "$corpus"
    fi
done < <("$fuzzer" --list)

[[ -z $json ]] || mkdir -p "$(dirname "$json")"
[[ -z $json ]] || (IFS=,; printf '{"targets":[%s]}\n' "${results[*]}") >"$json"
exit "$failed"
