#!/bin/sh
# Installs what Glasshouse needs of a Debian or Ubuntu machine, by apt, as root or with sudo.
#
#   build/setup/apt.sh [GROUP …]     groups: core window test; without any: core
#   build/setup/apt.sh --check …     install nothing; say what is missing and end with 1
#
#   core    run the app's core: both kinds of machine, and building the guest image
#   window  build and show the desktop window
#   test    run every test: a browser and a display for the window
#
# It may run again at any time. When all is there it needs neither root nor a network. As root it also makes the
# system user "glasshouse", which the core gives up its rights to for everything that touches a machine.
set -eu

# packages GROUP prints its packages. Go, a C compiler, Node and git are taken as given; see programs below.
packages() {
	case $1 in
	core)
		echo bubblewrap ca-certificates debian-archive-keyring e2fsprogs fakeroot git mmdebstrap openssh-client \
			qemu-system-x86 qemu-utils ripgrep uidmap util-linux xz-utils zstd
		;;
	window)
		echo libgtk-3-dev libwebkit2gtk-4.1-dev pkg-config
		;;
	test)
		echo curl dbus fonts-dejavu-core fonts-noto-color-emoji fonts-wqy-zenhei gnome-keyring imagemagick iproute2 jq libnss3-tools openbox openssh-server openssl procps \
			webkit2gtk-driver x11-utils xauth xdotool xvfb
		# Ubuntu's chromium is a snap, which no container runs; there the tests look for another Chrome.
		if [ "$(distribution)" = debian ]; then echo chromium; fi
		;;
	*)
		echo "apt.sh: unknown group \"$1\"; there are core, window and test" >&2
		exit 2
		;;
	esac
}

distribution() {
	sed -n 's/^ID=//p' /etc/os-release 2>/dev/null | tr -d '"'
}

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

check=
groups=
for arg in "$@"; do
	case $arg in
	--check) check=1 ;;
	-h | --help)
		sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	*) groups="$groups $arg" ;;
	esac
done
[ -n "$groups" ] || groups=core

if ! command -v dpkg-query >/dev/null; then
	echo "apt.sh: this machine has no dpkg. Glasshouse's setup knows Debian and Ubuntu; elsewhere install by hand:" >&2
	for g in $groups; do echo "  $g: $(packages "$g")" >&2; done
	exit 1
fi

missing=
for g in $groups; do
	list=$(packages "$g") || exit $?
	for p in $list; do
		case " $missing " in *" $p "*) continue ;; esac
		installed "$p" || missing="$missing $p"
	done
done
missing=${missing# }

programs=
for p in go git npm cc; do
	command -v "$p" >/dev/null || [ -x "/usr/local/go/bin/$p" ] || programs="$programs $p"
done
if [ -n "$programs" ]; then
	echo "apt.sh: not on this machine and not installed by this script:$programs" >&2
	echo "        (go: Go 1.26 or later; npm: with Node 20 or later; cc: any C compiler)" >&2
fi

if [ -n "$check" ]; then
	[ -z "$missing" ] || echo "apt.sh: missing packages: $missing" >&2
	[ -z "$missing$programs" ] || exit 1
	exit 0
fi

if [ "$(id -u)" = 0 ]; then
	root=
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -n "$missing" ]; }; }; then
	root=sudo
else
	root=none
fi

if [ -n "$missing" ]; then
	if [ "$root" = none ]; then
		echo "apt.sh: these packages are missing, and this user is neither root nor able to use sudo:" >&2
		echo "        $missing" >&2
		echo "        Ask an administrator to run: apt-get install --no-install-recommends $missing" >&2
		exit 1
	fi
	echo "apt.sh: installing $missing"
	apt() {
		# A half-configured or locked dpkg of another process is waited for, not failed on.
		$root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq -y "$@"
	}
	apt update
	# The tests start an ssh server of their own; the system's is only needed as a
	# program, and must not begin to listen because somebody runs tests.
	quiet=
	case " $missing " in
	*" openssh-server "*)
		if [ ! -e /usr/sbin/policy-rc.d ]; then
			quiet=1
			printf '#!/bin/sh\nexit 101\n' | $root tee /usr/sbin/policy-rc.d >/dev/null
			$root chmod 755 /usr/sbin/policy-rc.d
		fi
		;;
	esac
	settle() {
		[ -n "$quiet" ] || return 0
		$root rm -f /usr/sbin/policy-rc.d
		if [ -d /run/systemd/system ]; then $root systemctl -q disable ssh.service ssh.socket 2>/dev/null || true; fi
	}
	trap settle EXIT
	# shellcheck disable=SC2086 # a list
	if ! apt install --no-install-recommends $missing >/dev/null; then
		echo "apt.sh: apt-get could not install: $missing" >&2
		echo "        Its messages are above. Run this script again when they are settled; it goes on where it stopped." >&2
		exit 1
	fi
fi

# Only root's core has rights to give up, so only root needs the user.
if [ "$root" = "" ] && ! getent passwd glasshouse >/dev/null; then
	getent group glasshouse >/dev/null || groupadd --system glasshouse
	useradd --system --gid glasshouse --home-dir /var/lib/glasshouse --no-create-home --shell /usr/sbin/nologin glasshouse
fi
# An accelerated machine needs /dev/kvm, where there is one.
if [ "$root" = "" ] && getent group kvm >/dev/null && ! id -nG glasshouse | tr ' ' '\n' | grep -qx kvm; then
	usermod --append --groups kvm glasshouse
fi
if [ "$root" = "" ] && [ ! -d /var/lib/glasshouse ]; then
	install -d -m 755 /var/lib/glasshouse
fi
if [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ]; then
	echo "apt.sh: this machine lets programs make user namespaces only by an AppArmor profile, which the local machine" >&2
	echo "        (bubblewrap) needs. Either give /usr/bin/bwrap a profile with \"userns,\" or use machines of kind lima." >&2
fi
[ -z "$programs" ] || exit 1
