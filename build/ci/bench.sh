#!/bin/bash
# Measures Glasshouse against what it replaces. Needs 'make build' first.
#
#   build/ci/bench.sh exec      its last line is the result as JSON
#
# GLASSHOUSE_BIN names another folder of programs, GLASSHOUSE_CACHE the cache of the guest image.
# A target that is missed is no failure; a comparison that could not be made is one.
set -euo pipefail
[ "${1:-}" = exec ] || {
	sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
cd "$(dirname "$0")/../.."
bin=${GLASSHOUSE_BIN:-$PWD/build/bin}
export GLASSHOUSE_CACHE=${GLASSHOUSE_CACHE:-$PWD/build/cache}
mkdir -p build/bin
CGO_ENABLED=0 go build -o build/bin/bench ./build/bench
exec build/bin/bench -bin "$bin" exec
