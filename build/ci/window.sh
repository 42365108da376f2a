#!/bin/bash
# The real window on a display of its own. Prints "N passed, N failed".
#
#   build/ci/window.sh [PART …]    GLASSHOUSE_WINDOW=binary   GLASSHOUSE_SHOTS=folder keeps the pictures
#
#   smoke    it opens, paints, shows what other clients do as it happens; what is typed into it reaches the core
#   native   one of it, its place, where it does not go, what cannot end it, how it finds the core again
#   faults   a nil dereference in Go is an error, not the end, though the web view took the signal handlers
#   walk     the main job by hand, judged by the remote's tree and the log
#   flood    20,000 events at 2,000 a second beside a bare list
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
window=${GLASSHOUSE_WINDOW:-$root/build/bin/glasshouse-window}
export GLASSHOUSE_LIBEXEC=${GLASSHOUSE_LIBEXEC:-$root/build/bin}
passed=0
failed=0
# ok WHAT COMMAND… counts one check by the command's exit code.
ok() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		echo "ok   $what"
	else
		failed=$((failed + 1))
		echo "FAIL $what"
	fi
}

missing=
for p in Xvfb openbox xprop xdotool import identify compare convert git node cc go pkg-config WebKitWebDriver dbus-daemon; do command -v $p >/dev/null || missing="$missing $p"; done
[ -x "$window" ] || missing="$missing $window(make window)"
if [ -n "$missing" ]; then
	echo "FAIL the window cannot be tried: missing$missing; see build/setup/apt.sh core window test"
	echo "0 passed, 1 failed"
	exit 1
fi

dir=$(mktemp -d /tmp/gh-win-XXXXXX)
chmod 711 "$dir" # a root core's service user passes through
parts=${*:-smoke native faults walk flood}
part() { case " $parts " in *" $1 "*) return 0 ;; esac; return 1; }
shots=${GLASSHOUSE_SHOTS:-$dir/shots}
export GLASSHOUSE_SHOTS=$shots
mkdir -p "$shots"
win=
display=
desk=
bus=
finish() {
	[ -z "$win" ] || kill "$win" 2>/dev/null
	[ -z "${GLASSHOUSE_DATA:-}" ] || "$window" quit --now >/dev/null 2>&1
	for p in $desk $bus $display; do kill "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

# A hang guard, not a measure: what waits here has no time to keep.
until_true() {
	local i
	for i in $(seq "${LIMIT:-600}"); do
		"$@" && return 0
		sleep 0.2
	done
	return 1
}

# What may come too early for a busy window is done again.
repeated() {
	local i
	for i in 1 2 3 4 5 6; do
		"$@" && return 0
	done
	return 1
}

Xvfb -displayfd 3 -screen 0 1920x1200x24 -noreset -nolisten tcp 3>"$dir/display" 2>"$dir/xvfb.log" &
display=$!
until_true test -s "$dir/display" || { cat "$dir/xvfb.log"; echo "FAIL no display"; echo "0 passed, 1 failed"; exit 1; }
DISPLAY=:$(cat "$dir/display")
export DISPLAY

# The window is the first thing on the display: no window manager gives it the focus, the pointer does.
smoke() {
	export GLASSHOUSE_DATA=$dir/d GLASSHOUSE_CONFIG=$dir/c
	mkdir -p "$dir/c"
	echo 'machine = "local"' >"$dir/c/config.toml"
	echo '{"told": true}' >"$dir/c/window.json"
	git init -q -b main "$dir/greeter"
	printf '#!/bin/sh\necho helo\n' >"$dir/greeter/greet.sh"
	git -C "$dir/greeter" add .
	git -C "$dir/greeter" -c user.name=T -c user.email=t@example.test commit -q -m 'A greeting'

	"$window" desktop >"$dir/window.log" 2>&1 &
	win=$!

	found() { id=$(xdotool search --onlyvisible --name '^Glasshouse' 2>/dev/null | tail -1) && [ -n "$id" ]; }
	title() { xdotool getwindowname "$id" 2>/dev/null; }
	titled() { title | grep -qx "$1"; }
	picture() { import -window root "$shots/$1.png"; }
	colours() { identify -format %k "$1"; }
	painted() { picture "$1" && [ "$(colours "$shots/$1.png")" -gt 100 ]; }
	# Differs unless the two pictures are the same, pixel by pixel.
	differ() { [ "$(compare -metric AE "$shots/$1.png" "$shots/$2.png" null: 2>&1 | sed 's/ .*//')" != 0 ]; }
	changed() { picture "$2" && differ "$1" "$2"; }
	# Takes a picture a moment later: what is painted may be late. Nothing is judged by it.
	settled() {
		sleep 1
		picture "$1"
	}
	# The journal holds an event whose line matches.
	logged() { "$window" --json log --session "$1" 2>/dev/null | grep -q "$2"; }
	alive() { kill -0 "$win" 2>/dev/null; }
	key() { xdotool mousemove --window "$id" 640 4 key --clearmodifiers "$@"; }

	ok 'the window opens' until_true found
	ok 'it paints' until_true painted 1-empty
	answers() { "$window" project list >/dev/null; }
	ok 'the core it started answers' answers
	# Nobody touches the window: what it shows next comes through its own stream of events.
	"$window" project create "$dir/greeter" >"$dir/create.log" 2>&1 || cat "$dir/create.log"
	ok 'a project that another client made appears in its title' until_true titled 'Glasshouse: greeter'
	ok 'and in its picture' until_true changed 1-empty 2-project
	s=$("$window" session create greeter | awk '{print $1}')
	ok 'a session is there' test -n "$s"
	until_true changed 2-project 3-session
	"$window" exec --session "$s" -- sh greet.sh >/dev/null
	ok 'a step of another client appears' until_true changed 3-session 4-step

	# Keys go where the focus is, and it is not seen from here that the box has it. What came too
	# early is taken away, and it is typed once more.
	typed() {
		key Escape Escape
		key m
		sleep 1
		key ctrl+a
		xdotool type --delay 30 'hello from the window'
		key ctrl+Return
		LIMIT=30 until_true logged "$s" 'hello from the window'
	}
	ok 'a message typed into the window reaches the core' repeated typed

	cat >"$dir/ask.yaml" <<'YAML'
name: ask
steps:
  - tool: ask_user
    args: {question: "Shall it go on?", options: ["Go on", "Stop here"]}
    expect: {has: "Go on"}
YAML
	"$window" run "$dir/ask.yaml" --session "$s" </dev/null >"$dir/run.log" 2>&1 &
	run=$!
	ok 'a question that waits is counted in the title' until_true titled '(1) Glasshouse: greeter'
	settled 5-question
	# A key answers once the card had the focus for a moment.
	answered() {
		key Escape # out of the message box
		key w
		settled 6-focus
		key 1
		LIMIT=30 until_true logged "$s" '"type":"approval.answered".*"actor":"person"'
	}
	ok 'it is answered by keyboard in the window' repeated answered
	ended_run() { ! kill -0 "$run" 2>/dev/null; }
	until_true ended_run || kill "$run"
	ok 'and the agent goes on' wait "$run"
	ok 'then nothing waits' until_true titled 'Glasshouse: greeter'

	xdotool windowsize --sync "$id" 1920 1200 windowmove "$id" 0 0
	# The corner far from the old size is painted with the page's status bar, not with bare background.
	corner() { picture 7-large && [ "$(convert "$shots/7-large.png" -crop 400x26+1500+1174 +repage -format %k info:)" -gt 20 ]; }
	ok 'it paints all of another size' until_true corner
	settled 7-large

	ok 'the window lives' alive
	xdotool windowquit "$id" 2>/dev/null || kill "$win"
	ended() { ! alive; }
	ok 'it closes when it is asked to' until_true ended
	wait "$win"
	code=$?
	win=
	ok "and ends well (exit code $code)" test "$code" = 0
	ok 'the core goes on without it' logged "$s" '"type":"turn.ended"'
	faultless() { ! grep -E 'fault in|panic|SIG(SEGV|ABRT|BUS|FPE|ILL|TRAP)' "$dir/window.log"; }
	ok 'no fault was reported' faultless
	"$window" quit --now >/dev/null 2>&1
	unset GLASSHOUSE_DATA GLASSHOUSE_CONFIG
}

# counted NAME COMMAND… runs a part of its own counts; its last line is "N passed, N failed".
counted() {
	local name=$1 log=$dir/$1.out p f rc
	shift
	"$@" >"$log" 2>&1
	rc=$?
	grep -v ' passed, ' "$log"
	p=$(grep -oE '^[0-9]+ passed' "$log" | tail -1 | grep -oE '[0-9]+')
	f=$(grep -oE '[0-9]+ failed$' "$log" | tail -1 | grep -oE '[0-9]+')
	[ -n "$p" ] && [ -n "$f" ] || { p=0 f=1; }
	[ $rc = 0 ] || [ "$f" != 0 ] || f=1
	passed=$((passed + p)) failed=$((failed + f))
	echo "---- $name: $p passed, $f failed, ${SECONDS}s"
}

if part smoke; then smoke; echo "---- smoke: ${SECONDS}s"; fi

openbox >"$dir/openbox.log" 2>&1 &
desk=$!
managed() { xprop -root _NET_SUPPORTING_WM_CHECK 2>/dev/null | grep -q '#'; }
until_true managed || echo "the window manager did not come: $(cat "$dir/openbox.log")"
# A session bus of the test's own: a window of the person's desktop stays out of it.
dbus-daemon --session --nofork --nopidfile --address="unix:path=$dir/bus" >"$dir/bus.log" 2>&1 &
bus=$!
export DBUS_SESSION_BUS_ADDRESS=unix:path=$dir/bus
web=webkit2gtk-4.1
pkg-config --exists $web || web=webkit2gtk-4.0
shim=$dir/shim.so
# shellcheck disable=SC2046 # flags
cc -shared -fPIC -O1 -o "$shim" "$root/build/ci/window/shim.c" $(pkg-config --cflags --libs $web) || { echo "FAIL the shim cannot be built"; failed=$((failed + 1)); }
folder() { mkdir -p "$dir/$1"; chmod 711 "$dir/$1"; echo "$dir/$1"; }
nowhere() {
	local said
	said=$(env -u DISPLAY -u WAYLAND_DISPLAY GLASSHOUSE_DATA="$(folder e)/d" GLASSHOUSE_CONFIG="$dir/e/c" "$window" desktop 2>&1) && return 1
	GLASSHOUSE_DATA="$dir/e/d" GLASSHOUSE_CONFIG="$dir/e/c" "$window" quit --now >/dev/null 2>&1
	case $said in *'finds no display'*) ;; *) echo "$said"; false ;; esac
}
if part native; then ok 'without a display it says so, and what to do' nowhere; fi
part native && counted native node "$root/build/ci/window/native.mjs" "$window" "$shim" "$(folder n)"
faults() { (cd "$root" && go test -tags "desktop,production,windowfault$([ $web = webkit2gtk-4.1 ] && echo ,webkit2_41)" -count=1 -v -run 'Fault' ./app/desktop) >"$dir/faults.log" 2>&1 && grep -q '^--- PASS: TestFaults' "$dir/faults.log" || { tail -40 "$dir/faults.log"; false; }; }
if part faults; then ok 'a nil dereference in Go is caught, and would not be without the repair' faults; fi
part walk && counted walk node "$root/build/ci/window/walk.mjs" "$window" "$shim" "$(folder w)"
if part flood; then
	(cd "$root" && CGO_ENABLED=0 go build -o "$dir/standin" ./build/ci/window/standin)
	counted flood node "$root/build/ci/window/flood.mjs" "$window" "$dir/standin" "$shim" "$(folder f)"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
