#!/bin/sh
# Builds the limactl that Glasshouse bundles.
#
#   build/setup/limactl.sh PREFIX     writes PREFIX/bin/limactl; does nothing when it is there in the pinned version
#
# Needs Go and the Go module proxy, a minute of processor time the first time, and no root.
set -eu

[ $# = 1 ] || {
	sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
case $1 in
/*) prefix=$1 ;;
*) prefix=$PWD/$1 ;;
esac
cd "$(dirname "$0")/../../vm/lima/limactl"
lima=github.com/lima-vm/lima
version=$(sed -n "s#^[[:space:]]*$lima v\([^ ]*\).*#\1#p" go.mod)
if [ -z "$version" ]; then
	echo "limactl.sh: $PWD/go.mod names no $lima" >&2
	exit 1
fi
if [ "$("$prefix/bin/limactl" --version 2>/dev/null)" = "limactl version $version" ]; then
	exit 0
fi
mkdir -p "$prefix/bin"
# Beside the old one and then over it, so that whoever starts limactl meanwhile gets a whole file.
new=$prefix/bin/.limactl.$$
trap 'rm -f "$new"' EXIT
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $lima/pkg/version.Version=$version" -o "$new" "$lima/cmd/limactl"
mv "$new" "$prefix/bin/limactl"
echo "limactl.sh: limactl $version is in $prefix/bin"
