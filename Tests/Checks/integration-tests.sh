#!/usr/bin/env bash
# Runs the integration tests on the programs in LONGWIRE_BIN: first side by side in LONGWIRE_TEST_WORKERS processes (the
# processors plus one, since many tests wait), then one after another those marked `alone`, which judge times under full load.
set -euo pipefail
cd "$(dirname "$0")/../.."

workers="${LONGWIRE_TEST_WORKERS:-$(($(nproc) + 1))}"
pytest=(.build/python/bin/python -m pytest -q --durations=20 Tests/Integration)
status=0
"${pytest[@]}" -m "not alone" -n "$workers" --dist loadfile || status=1
"${pytest[@]}" -m alone || status=1
exit "$status"
