# Runs outside the new root, as its root user, after the packages are in; $1 is the new root.
# The text is handed to mmdebstrap as one hook, because in its user namespace no path of ours need be readable.
set -eu
root=$1

# The kernel is unpacked, not installed: installing it would pull in initramfs-tools and udev
# and spend a minute on an initramfs that nothing boots.
kernel=$(APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-cache depends --important linux-image-cloud-amd64 |
  sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
if [ -z "$kernel" ]; then
  echo "no kernel package behind linux-image-cloud-amd64 in the apt sources" >&2
  exit 1
fi
debs=$root/var/cache/glasshouse-kernel
mkdir -p "$debs"
(cd "$debs" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -o APT::Sandbox::User=root -qq download "$kernel")
for deb in "$debs"/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --exclude=./usr/share -C "$root" -f -
  dpkg-deb -f "$deb" Package Version Architecture >"$root/usr/share/glasshouse-kernel"
done
rm -rf "$debs"
release=$(ls "$root/usr/lib/modules")
# Drivers of hardware that no virtual machine of ours has; the rest stays for modprobe in the guest.
for d in gpu infiniband media net/ethernet net/wireless net/phy nvme scsi/mpt3sas scsi/megaraid usb hwmon; do
  rm -rf "$root/usr/lib/modules/$release/kernel/drivers/$d"
done
chroot "$root" depmod "$release"

# People of the machine. Passwords stay locked; only root's sudo rule and ssh keys let anyone in.
chroot "$root" groupadd --gid 1000 agent
chroot "$root" useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash agent
chroot "$root" groupadd --gid 1001 lima
chroot "$root" useradd --uid 1001 --gid 1001 --create-home --shell /bin/bash lima
# "*" is locked for passwords yet lets sshd accept a key, which "!" does not without PAM.
chroot "$root" usermod --password '*' agent
chroot "$root" usermod --password '*' lima
mkdir -p "$root/workspace" "$root/home/lima/.ssh"
chroot "$root" chown 1000:1000 /workspace
chroot "$root" chown 1001:1001 /home/lima/.ssh
chmod 700 "$root/home/lima/.ssh"

# Haste was for the build; a machine that is switched off keeps its package database whole.
sed -i '/force-unsafe-io/d' "$root"/etc/dpkg/dpkg.cfg.d/*

# One image, many machines: nothing in it may be anybody's identity.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname" "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"
: >"$root/etc/fstab"
# /tmp is mmdebstrap's own until it has ended: its apt configuration for this root stands there.
find "$root/var/log" -type f -delete
rm -rf "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old
rm -rf "$root"/usr/share/doc-base "$root"/usr/share/lintian "$root"/usr/share/bug
