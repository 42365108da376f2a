#!/usr/bin/env bash
# Runs the tests, in the order in which they fail fastest, and counts them.
#
#   build/ci/test.sh            everything CI runs
#   build/ci/test.sh machines   only what needs real machines
#
# Prints one line a part, the failures whole, and "N passed, N failed, N skipped" at the end.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export GLASSHOUSE_CACHE=${GLASSHOUSE_CACHE:-$root/build/cache}
export GLASSHOUSE_BIN=$root/build/bin
out=$root/build/tmp/test
rm -rf "$out"
mkdir -p "$out"
passed=0 failed=0 skipped=0
began=$SECONDS

say() { printf '%5ds  %s\n' "$((SECONDS - began))" "$*"; }

# add PASSED FAILED SKIPPED
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# gotests NAME ARGS…: go test, counted by its own lines. A package that does not
# build or crashes counts as one failure.
gotests() {
	local name=$1 log=$out/$1.log rc p f s
	shift
	go test -v "$@" >"$log" 2>&1
	rc=$?
	p=$(grep -cE '^ *--- PASS: ' "$log")
	f=$(grep -cE '^ *--- FAIL: ' "$log")
	s=$(grep -cE '^ *--- SKIP: ' "$log")
	[ $rc -ne 0 ] && [ "$f" -eq 0 ] && f=1
	add "$p" "$f" "$s"
	say "$name: $p passed, $f failed, $s skipped"
	if [ "$s" -gt 0 ]; then
		grep -A3 -E '^ *--- SKIP: ' "$log" | grep -vE '^ *---|^--$|^ok|^=== ' | sed -E 's/^ +[a-z0-9_]+\.go:[0-9]+: //' | sort | uniq -c | sort -rn | head -12 | sed 's/^/         skipped: /'
	fi
	if [ $rc -ne 0 ]; then
		grep -vE '^(=== |ok |\?   |PASS$)|^ *--- (PASS|SKIP)' "$log" | tail -120
	fi
}

# lines NAME CMD…: a program whose last line is "N passed, N failed".
lines() {
	local name=$1 log=$out/$1.log rc p f
	shift
	"$@" >"$log" 2>&1
	rc=$?
	p=$(grep -oE '[0-9]+ passed' "$log" | tail -1 | grep -oE '[0-9]+')
	f=$(grep -oE '[0-9]+ failed' "$log" | tail -1 | grep -oE '[0-9]+')
	p=${p:-0} f=${f:-0}
	[ $rc -ne 0 ] && [ "$f" -eq 0 ] && f=1
	add "$p" "$f" 0
	say "$name: $p passed, $f failed"
	[ $rc -eq 0 ] || tail -80 "$log"
}

# one NAME CMD…: a command that is one test.
one() {
	local name=$1 log=$out/$1.log
	shift
	if "$@" >"$log" 2>&1; then
		add 1 0 0
		say "$name: ok"
	else
		add 0 1 0
		say "$name: failed"
		tail -80 "$log"
	fi
}

finish() {
	echo
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
	exit
}

one setup sh build/setup/apt.sh core window test
one build make --no-print-directory build fakemodel
# Without the programs nothing below says anything.
[ "$failed" -eq 0 ] || finish

if [ "${1:-all}" = all ]; then
	one vet make --no-print-directory vet
	one types make --no-print-directory types
	lines page bash -c 'cd frontend && npm test --silent 2>&1 | tee /dev/stderr | sed -nE "s/^ *Tests +(.*)/\1/p" | sed -E "s/\x1b\[[0-9;]*m//g; s/ \| /, /g; /failed/!s/$/, 0 failed/" | tail -1'
	gotests unit ./...
	one lint make --no-print-directory lint
fi

one image build/bin/glasshouse image build
build/bin/glasshouse quit --now >/dev/null 2>&1
image=$(ls -dt "$GLASSHOUSE_CACHE"/*/manifest.json 2>/dev/null | head -1)
[ -n "$image" ] || finish
export GLASSHOUSE_TEST_IMAGE=$(dirname "$image") GLASSHOUSE_TEST_GUESTD=$GLASSHOUSE_BIN/guestd
limactl=$GLASSHOUSE_BIN/lima/bin/limactl
if [ "$(id -u)" = 0 ]; then
	# Machines of root run as a service user, which cannot enter every folder that a
	# clone may stand in. The core has put the image where it can; the programs follow.
	home=${GLASSHOUSE_DATA:-/var/lib/glasshouse}
	GLASSHOUSE_TEST_IMAGE=$home/images/$(basename "$GLASSHOUSE_TEST_IMAGE")
	install -d -m 0755 "$home/tools/test"
	install -m 0755 "$GLASSHOUSE_TEST_GUESTD" "$limactl" "$home/tools/test/"
	GLASSHOUSE_TEST_GUESTD=$home/tools/test/guestd limactl=$home/tools/test/limactl
fi
gotests image -count=1 -run Real ./vm/image
gotests local -count=1 -timeout 15m ./vm/local
GLASSHOUSE_TEST_BWRAP=1 gotests cells -count=1 -timeout 10m ./vm/guest/agent/...
GLASSHOUSE_E2E=local gotests whole-local -count=1 -timeout 30m ./app/e2e
GLASSHOUSE_VM=1 GLASSHOUSE_IMAGE=$GLASSHOUSE_TEST_IMAGE GLASSHOUSE_GUESTD=$GLASSHOUSE_TEST_GUESTD GLASSHOUSE_LIMACTL=$limactl gotests lima -count=1 -timeout 20m -run 'Real|Contract' ./vm/lima
GLASSHOUSE_E2E=lima GLASSHOUSE_SEEDS=1 gotests whole-lima -count=1 -timeout 30m ./app/e2e
one demo-local build/bin/glasshouse demo --machine local
one demo-lima build/bin/glasshouse demo --machine lima
lines page-in-browser env "GLASSHOUSE_BIN=$GLASSHOUSE_BIN/glasshouse" npm --prefix frontend run --silent e2e
one window make --no-print-directory window
lines page-in-window bash build/ci/window.sh
finish
