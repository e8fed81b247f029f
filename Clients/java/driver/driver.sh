#!/usr/bin/env bash
# Starts the driver of the conformance suite; build it first with Clients/java/build.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
# The suite starts the driver hundreds of times, so the flags favour a fast start.
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Xmx64m \
    -cp "$here/build/longwire-client.jar:$here/build/longwire-driver.jar" longwire.driver.Driver "$@"
