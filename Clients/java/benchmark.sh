#!/usr/bin/env bash
# Measures the client against a local sender: messages a second on one core, then heap and wake-ups of an idle client.
#
#   Clients/java/benchmark.sh [RUNS]     three runs by default; about five minutes
#
# The receiver runs on the first core alone (taskset), the sender on the others. Ports are on the loopback address.
set -euo pipefail
cd "$(dirname "$0")"
runs=${1:-3}
[ -e build/longwire-client.jar ] || ./build.sh --jars
mkdir -p build/benchmark
javac --release 8 -encoding UTF-8 -Xlint:all -Xlint:-options -Werror -cp build/longwire-client.jar -d build/benchmark \
    benchmark/src/main/java/longwire/client/*.java
path=build/longwire-client.jar:build/benchmark
cores=$(nproc)
others=$([ "$cores" -gt 1 ] && echo "1-$((cores - 1))" || echo 0)
sender=
trap '[ -z "$sender" ] || kill "$sender" 2>/dev/null || true' EXIT

# with_sender WINDOW PAYLOAD HEARTBEAT PART… starts a sender, runs one part of the benchmark and stops the sender.
with_sender() {
    local port=$((20000 + RANDOM % 20000)) window=$1 payload=$2 heartbeat=$3 part=$4
    shift 4
    coproc SENDER { exec taskset -c "$others" java -XX:+UseSerialGC -Xmx256m -cp "$path" longwire.client.Benchmark send "$port" "$window" \
        "$payload" "$heartbeat"; }
    sender=$SENDER_PID
    read -r _ <&"${SENDER[0]}"
    # One core: the collector and the compiler share it with the client's thread.
    taskset -c 0 java -XX:+UseSerialGC -Xmx64m -cp "$path" longwire.client.Benchmark "$part" "$port" "$@"
    kill "$sender"
    wait "$sender" 2>/dev/null || true
    sender=
}

echo "$cores cores, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | sed 's/^ *//'), load $(cut -d' ' -f1 /proc/loadavg)"
java -version 2>&1 | head -1
for ((run = 1; run <= runs; run++)); do
    echo "run $run"
    with_sender 32 100 300 receive 32 20000 file
    with_sender 512 100 300 receive 512 200000 file
    with_sender 512 100 300 receive 512 1000000 ram
    with_sender 512 100 300 receive 512 1000000 memory
    with_sender 32 0 1 idle 20
done
