#!/bin/bash
# The demo's job done by the model agent, on a scripted server in place of a model: a
# failing test is mended, a form is tried in the browser, a host is asked for. On the way
# the server sends what real ones do: too many requests, a cut answer, broken arguments.
#
#   build/demo/model.sh         needs 'make build fakemodel' first
#
# MACHINE is local or lima, FORMAT openai-chat, openai-responses or anthropic. All it makes
# is below a folder of its own and gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${GLASSHOUSE_BIN:-$PWD/build/bin} machine=${MACHINE:-local} format=${FORMAT:-openai-chat}
export GLASSHOUSE_CACHE=${GLASSHOUSE_CACHE:-$PWD/build/cache}
dir=$(mktemp -d /tmp/gh-demo-XXXXXX) # short: it holds sockets
export GLASSHOUSE_DATA=$dir/d GLASSHOUSE_CONFIG=$dir/c
server= answers=
finish() {
	code=$?
	for p in $answers $server; do kill "$p" 2>/dev/null || true; done
	"$bin/glasshouse" quit --now >/dev/null || code=1
	wait 2>/dev/null || true
	rm -rf "$dir"
	exit $code
}
trap finish EXIT
chmod 711 "$dir" # a service user passes through
mkdir "$dir/c" "$dir/orders"
echo "machine = \"$machine\"" >"$dir/c/config.toml"

say() { printf '\n== %s\n' "$*"; }

say "a sample repository with a failing test"
cp app/cli/sample/{README.md,server.py,test_total.py,total.py} "$dir/orders"
printf '__pycache__/\n' >"$dir/orders/.gitignore"
git_() { git -C "$dir/orders" -c user.name=Sample -c user.email=sample@demo.example "$@"; }
git_ init -q -b main && git_ add . && git_ commit -q -m Orders
"$bin/glasshouse" project create "$dir/orders" --name orders

say "a server that answers from a script, set up as the model \"demo\" ($format)"
"$bin/fakemodel" -script backend/model/modeltest/testdata/demo.yaml >"$dir/server" &
server=$!
for _ in $(seq 100); do [ -s "$dir/server" ] && break; sleep 0.1; done
"$bin/glasshouse" model add demo --format "$format" --model scripted --base-url "$(head -n 1 "$dir/server")" --price-input 3 --price-output 15
"$bin/glasshouse" model try demo

say "the model works; questions about hosts are answered no, as the demo"
while sleep 0.3; do
	"$bin/glasshouse" approval list 2>/dev/null | sed -n 's/^\(ap_[a-z0-9]*\)  .*/\1/p' | while read -r q; do
		"$bin/glasshouse" --as demo approval answer "$q" deny >/dev/null || true
	done
done &
answers=$!
"$bin/glasshouse" run --project orders --limit 2.50 --check 'python3 -m unittest' --verbose \
	"Find out why the test fails and mend it, then try the form in the browser." </dev/null
if [ "$(wc -l <"$dir/server")" != 1 ]; then
	echo "the server did not get what its script expects:" >&2
	tail -n +2 "$dir/server" >&2
	exit 1
fi

say "what there is to review"
"$bin/glasshouse" review open orders
