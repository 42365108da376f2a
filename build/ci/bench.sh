#!/bin/bash
# Measures Glasshouse against what it replaces. The last line is the result as JSON.
#
#   build/ci/bench.sh exec      commands and cold starts; needs 'make build' first
#   build/ci/bench.sh ui        the window, on a display of its own; needs 'make window' first
#
# GLASSHOUSE_BIN names another folder of programs, GLASSHOUSE_CACHE the cache of the guest image.
# A target that is missed is no failure; a comparison that could not be made is one.
set -euo pipefail
[ "${1:-}" = exec ] || [ "${1:-}" = ui ] || {
	sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
cd "$(dirname "$0")/../.."
bin=${GLASSHOUSE_BIN:-$PWD/build/bin}
export GLASSHOUSE_CACHE=${GLASSHOUSE_CACHE:-$PWD/build/cache}
mkdir -p build/bin
if [ "$1" = ui ]; then
	for p in Xvfb openbox xdotool node WebKitWebDriver; do
		command -v $p >/dev/null || { echo "bench: $p is missing; see build/setup/apt.sh core window test" >&2; exit 1; }
	done
	window=${GLASSHOUSE_WINDOW:-$bin/glasshouse-window}
	[ -x "$window" ] || { echo "bench: $window is not built; run 'make window'" >&2; exit 1; }
	web=webkit2gtk-4.1 tags=desktop,production,webkit2_41
	pkg-config --exists $web || web=webkit2gtk-4.0 tags=desktop,production
	dir=$(mktemp -d /tmp/gh-bench-XXXXXX)
	display= desk=
	finish() {
		for p in $desk $display; do kill "$p" 2>/dev/null || true; done
		wait 2>/dev/null || true
		rm -rf "$dir"
	}
	trap finish EXIT
	# shellcheck disable=SC2046 # flags
	cc -shared -fPIC -O1 -o "$dir/shim.so" build/ci/window/shim.c $(pkg-config --cflags --libs $web)
	CGO_ENABLED=0 go build -o "$dir/standin" ./build/ci/window/standin
	# The same flags as the window: what differs is what is in it.
	go build -tags $tags -ldflags '-s -w' -o "$dir/barewindow" ./build/bench/ui/barewindow
	Xvfb -displayfd 3 -screen 0 1920x1200x24 -noreset -nolisten tcp 3>"$dir/display" 2>"$dir/xvfb.log" &
	display=$!
	for _ in $(seq 100); do [ -s "$dir/display" ] && break; sleep 0.1; done
	DISPLAY=:$(cat "$dir/display")
	export DISPLAY
	openbox >"$dir/openbox.log" 2>&1 &
	desk=$!
	node build/bench/ui/run.mjs "$window" "$dir/barewindow" "$dir/standin" "$dir/shim.so" "$dir" "${@:2}"
	exit
fi
CGO_ENABLED=0 go build -o build/bin/bench ./build/bench
exec build/bin/bench -bin "$bin" exec
