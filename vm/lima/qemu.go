package lima

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
)

// Lima makes QEMU's command line; this file makes it smaller. Everything a guest
// could talk to and does not need is taken off, the accelerator is the one that
// was found to work, and whatever is not on the list below is refused, so that a
// new version of Lima or an edited lima.yaml cannot add a device or a way out.

// Rewrite says how RewriteQEMUArgs treats one machine.
type Rewrite struct {
	Accel       string // "kvm", "hvf" or "tcg"
	InstanceDir string // every path on the command line must be in here
	Sandbox     bool   // QEMU's own system call filter (Linux)
}

// Devices that a machine keeps, besides its disk.
var keptDevices = map[string]bool{"virtio-net-pci": true, "virtio-rng-pci": true}

// Devices that Lima adds and a machine does without: screen, input, USB, the
// cloud-init CD-ROM (guestd gets its settings on the kernel's command line) and
// the second console.
var droppedDevices = map[string]bool{
	"virtio-vga": true, "virtio-gpu": true, "virtio-keyboard-pci": true, "virtio-mouse-pci": true, "virtio-tablet-pci": true,
	"qemu-xhci": true, "virtio-scsi-pci": true, "scsi-cd": true, "virtio-serial-pci": true, "virtconsole": true,
}

var (
	netdevPattern = regexp.MustCompile(`^socket,id=net0,fd=[0-9]{1,4}$`)
	macPattern    = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	plainPattern  = regexp.MustCompile(`^[A-Za-z0-9_.,=+-]{1,200}$`)
)

// sandboxArg keeps QEMU from starting programs and gaining rights.
const sandboxArg = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// accelArgs are the machine and accelerator options for one way to run a guest.
func accelArgs(accel string) ([]string, error) {
	var a string
	switch accel {
	case "kvm", "hvf":
		a = accel
	case "tcg":
		a = "tcg,thread=multi,tb-size=512"
	default:
		return nil, fmt.Errorf("%q is no accelerator of QEMU that Glasshouse knows", accel)
	}
	machine := "q35,vmport=off,smbus=off,sata=off,i8042=off,usb=off,graphics=off,dump-guest-core=off"
	if runtime.GOARCH == "arm64" {
		machine = "virt,usb=off,graphics=off,dump-guest-core=off"
	}
	return []string{"-machine", machine, "-accel", a}, nil
}

// baseArgs is what every guest, also the probe's, is started with.
func baseArgs(sandbox bool) []string {
	a := []string{"-nodefaults", "-no-user-config", "-no-reboot", "-vga", "none", "-display", "none", "-parallel", "none"}
	if sandbox {
		a = append(a, "-sandbox", sandboxArg)
	}
	return a
}

// RewriteQEMUArgs returns the command line (without the program) that replaces
// Lima's, and the hardware address of the machine's network card. It is an
// error that names the option when Lima asked for something unknown.
func RewriteQEMUArgs(args []string, r Rewrite) (out []string, mac string, err error) {
	if out, err = accelArgs(r.Accel); err != nil {
		return nil, "", err
	}
	out = append(out, baseArgs(r.Sandbox)...)
	inside := func(p string) bool {
		return filepath.Dir(p) == filepath.Clean(r.InstanceDir) && !strings.ContainsAny(p, ",")
	}
	refuse := func(k, v string) error {
		return fmt.Errorf("Lima started QEMU with %s %q, which Glasshouse does not know and therefore refuses; use the limactl that comes with Glasshouse", k, printable(v))
	}
	disk := false
	for i := 0; i < len(args); i += 2 {
		k := args[i]
		if i+1 == len(args) || !strings.HasPrefix(k, "-") {
			return nil, "", refuse(k, "")
		}
		v := args[i+1]
		ok, keep := true, v
		switch k {
		case "-m", "-smp", "-cpu", "-name":
			ok = plainPattern.MatchString(v)
		case "-append":
			ok = !strings.ContainsAny(v, "\x00\n")
		case "-kernel", "-initrd", "-pidfile":
			ok = inside(v)
		case "-machine", "-accel", "-boot", "-display", "-parallel", "-vga":
			keep = "" // ours are above
		case "-global":
			ok, keep = strings.HasPrefix(v, "ICH9-LPC."), ""
		case "-netdev":
			ok = netdevPattern.MatchString(v)
		case "-qmp":
			ok = v == "chardev:char-qmp"
		case "-serial":
			ok = v == "chardev:char-serial"
		case "-drive":
			keep, ok = rewriteDrive(v, inside)
			disk = disk || keep != ""
		case "-chardev":
			keep, ok = rewriteChardev(v, inside)
		case "-device":
			keep, mac, ok = rewriteDevice(v, mac)
		default:
			ok = false
		}
		if !ok {
			return nil, "", refuse(k, v)
		}
		if keep != "" {
			out = append(out, k, keep)
		}
	}
	if !disk || mac == "" {
		return nil, "", errors.New("Lima's command line for QEMU has no disk or no network card; use the limactl that comes with Glasshouse")
	}
	return out, mac, nil
}

// options takes "a=b,c" apart; the first word without "=" has the key "".
func options(v string) map[string]string {
	m := map[string]string{}
	for i, f := range strings.Split(v, ",") {
		k, x, has := strings.Cut(f, "=")
		if !has && i == 0 {
			k, x = "", f
		}
		m[k] = x
	}
	return m
}

func rewriteDrive(v string, inside func(string) bool) (keep string, ok bool) {
	o := options(v)
	switch {
	case o["id"] == "cdrom0" && o["readonly"] == "on":
		return "", true
	case o["if"] == "virtio" && filepath.Base(o["file"]) == "diffdisk" && inside(o["file"]):
		// The format is said, not guessed from bytes.
		return "file=" + o["file"] + ",if=virtio,format=qcow2,discard=unmap,cache=writeback", true
	}
	return "", false
}

func rewriteChardev(v string, inside func(string) bool) (keep string, ok bool) {
	o := options(v)
	if o[""] != "socket" {
		return "", false
	}
	switch o["id"] {
	case "char-serial":
		// Its log is appended to, so that it can be cut while QEMU writes to it.
		return "socket,id=char-serial,path=" + o["path"] + ",server=on,wait=off,logfile=" + o["logfile"] + ",logappend=on", inside(o["path"]) && inside(o["logfile"])
	case "char-serial-virtio":
		return "", true
	case "char-qmp":
		return "socket,id=char-qmp,path=" + o["path"] + ",server=on,wait=off", inside(o["path"])
	}
	return "", false
}

func rewriteDevice(v, mac string) (keep, newMAC string, ok bool) {
	o := options(v)
	name := o[""]
	switch {
	case droppedDevices[name]:
		return "", mac, true
	case !keptDevices[name]:
		return "", mac, false
	case name == "virtio-net-pci":
		if mac != "" || o["netdev"] != "net0" || !macPattern.MatchString(o["mac"]) || len(o) != 3 {
			return "", mac, false
		}
		return v + ",romfile=", o["mac"], true // no network boot
	}
	return v, mac, v == name
}

// QEMUMain runs the hidden command "qemu": the wrapper that Lima starts in place
// of QEMU. args are its own flags, "--", and then Lima's arguments. On success
// it does not return: the process becomes QEMU.
func QEMUMain(args []string) error {
	fs := flag.NewFlagSet("qemu", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var r Rewrite
	real := fs.String("real", "", "QEMU's program")
	macFile := fs.String("macfile", "", "where the card's address is written")
	fs.StringVar(&r.Accel, "accel", "", "accelerator")
	fs.StringVar(&r.InstanceDir, "dir", "", "the instance's folder")
	fs.BoolVar(&r.Sandbox, "sandbox", false, "use QEMU's system call filter")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	if !filepath.IsAbs(*real) || !filepath.IsAbs(r.InstanceDir) {
		return errors.New("qemu: this command is started by Glasshouse itself and needs -real and -dir")
	}
	argv := fs.Args()
	if !asksOnly(argv) {
		out, mac, err := RewriteQEMUArgs(argv, r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(*macFile, []byte(mac+"\n"), 0o600); err != nil {
			return fmt.Errorf("the network card's address cannot be kept: %w", err)
		}
		argv = out
		// A core dump would hold the guest's whole memory.
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	}
	if err := syscall.Exec(*real, append([]string{*real}, argv...), os.Environ()); err != nil {
		return fmt.Errorf("QEMU (%s) cannot be started: %w", *real, err)
	}
	return nil
}

// asksOnly reports whether Lima only asks QEMU what it can do. Such a command
// line starts no guest: it has "help" or "--version" and no pid file.
func asksOnly(args []string) bool {
	asks := false
	for _, a := range args {
		switch a {
		case "-pidfile", "--pidfile", "-kernel", "-drive", "-hda", "-incoming", "-daemonize":
			return false
		case "help", "--version", "-version", "--help", "-help":
			asks = true
		}
	}
	return asks
}
