#!/usr/bin/env bash
# Many seeds, long: kills at many moments on both kinds, the log's crash test, fuzzers. Run by hand.
#   SEEDS=20 KINDS=local,lima FUZZ=60s build/ci/soak.sh
set -uo pipefail
cd "$(dirname "$0")/../.."
export GLASSHOUSE_CACHE=${GLASSHOUSE_CACHE:-$PWD/build/cache}
seeds=${SEEDS:-20} kinds=${KINDS:-local,lima} fuzz=${FUZZ:-60s}
rc=0
GLASSHOUSE_E2E=$kinds GLASSHOUSE_SEEDS=$seeds go test -count=1 -timeout 6h -v -run TestKill ./app/e2e || rc=1
EVENTLOG_SOAK=$((seeds * 3)) go test -count=1 -timeout 2h -v -run TestCrash ./backend/eventlog || rc=1
go test -count=5 -timeout 2h ./backend/approval ./backend/session ./backend/machine ./vm/guest/checkpoint/... ./vm/guest/watch/... || rc=1
# Every fuzzer of the tree, one after the other. Making an input that is merely new small
# may take no longer than this: left to itself it takes a minute each, all of the time.
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r pkg; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$pkg"/*_test.go | sed 's/func //' | while read -r f; do
		echo "== $pkg $f"
		go test -run '^$' -fuzz "^$f\$" -fuzztime "$fuzz" -fuzzminimizetime 200x "./$pkg" || exit 1
	done || exit 1
done || rc=1
exit $rc
