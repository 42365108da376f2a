//go:build linux

package boot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/agent"
)

// Port and link of the channel in a VM.
const (
	Port = 1021
	Link = "eth0"
)

const limaInit = "/usr/lib/glasshouse/lima-init"

// vmMain is pid 1 of a VM. It ends by powering the machine off; returning would
// be a kernel panic.
func vmMain(cfg agent.Config, sigs chan os.Signal) error {
	if k, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		log.SetOutput(kmsg{k})
		log.SetPrefix("")
	}
	cfg.Kind, cfg.Run = agent.KindVM, "/run/glasshouse"
	note := func(what string, err error) {
		if err != nil {
			log.Printf("init: %s: %v", what, err)
			cfg.Notes = append(cfg.Notes, what+": "+err.Error())
		}
	}
	note("mounts", mounts())
	note("ctrl-alt-del", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF))
	note("sysctl", sysctls("/etc/sysctl.d"))
	note("PATH", os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
	words := cmdline()
	if name := words["gh.hostname"]; name != "" {
		note("host name", agent.SetHostname(name))
	}
	cfg.Peer = words["gh.gw"]
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		cfg.BootID = strings.TrimSpace(string(b))
	} else {
		cfg.BootID = randomID()
	}
	if err := cgroups(); err != nil {
		note("cgroups", err)
	} else {
		cfg.Cgroups = cgroupRoot
	}
	for _, d := range []string{cfg.Run, cfg.State} {
		note("folders", errors.Join(os.MkdirAll(d, 0o700), os.Chmod(d, 0o700)))
	}
	note("loopback", loopbackUp())
	// A kernel's own default of 1,024 files is too few for watchers and servers.
	note("open files", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 65536, Max: 1 << 20}))
	l, err := listenLink(Link, Port)
	if err != nil {
		// Without the channel nobody can ever reach this machine.
		log.Printf("init: %v", err)
		powerOff()
	}
	log.Printf("init: up, pid 1, %s", uptime())
	startLima()
	in := &initer{cfg: cfg, listener: l, sigs: sigs}
	in.run()
	powerOff()
	return nil
}

type kmsg struct{ f *os.File }

func (k kmsg) Write(p []byte) (int, error) {
	if _, err := k.f.Write(append([]byte("<6>guestd: "), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func uptime() string {
	b, _ := os.ReadFile("/proc/uptime")
	up, _, _ := strings.Cut(string(b), " ")
	return up + " s after the kernel"
}

// cmdline maps the kernel's command line words NAME=VALUE.
func cmdline() map[string]string {
	b, _ := os.ReadFile("/proc/cmdline")
	return parseCmdline(string(b))
}

func parseCmdline(s string) map[string]string {
	out := map[string]string{}
	for _, w := range strings.Fields(s) {
		if k, v, ok := strings.Cut(w, "="); ok {
			out[k] = v
		}
	}
	return out
}

func mounts() error {
	type m struct {
		dir, typ, data string
		flags          uintptr
	}
	var errs []error
	note := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
		}
	}
	for _, x := range []m{
		{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/dev", "devtmpfs", "mode=0755", unix.MS_NOSUID},
		{"/dev/pts", "devpts", "gid=5,mode=0620,ptmxmode=0666", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"/run", "tmpfs", "mode=0755,size=20%", unix.MS_NOSUID | unix.MS_NODEV},
		{"/sys/fs/cgroup", "cgroup2", "nsdelegate", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if mounted(x.dir) {
			continue
		}
		note(os.MkdirAll(x.dir, 0o755))
		if err := unix.Mount(x.typ, x.dir, x.typ, x.flags, x.data); err != nil && err != unix.EBUSY {
			note(fmt.Errorf("%s on %s: %w", x.typ, x.dir, err))
		}
	}
	if _, err := os.Lstat("/dev/ptmx"); err != nil {
		note(os.Symlink("pts/ptmx", "/dev/ptmx"))
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		note(os.Symlink(to, "/dev/"+name)) // those that exist stay
	}
	for _, d := range []string{"/run/lock", "/run/user", "/var/tmp"} {
		note(os.MkdirAll(d, 0o755))
	}
	for _, d := range []string{"/tmp", "/var/tmp", "/run/lock"} {
		note(os.Chmod(d, 0o777|fs.ModeSticky))
	}
	return errors.Join(errs...)
}

// mounted reports whether something is mounted at dir: its device differs from
// its parent's.
func mounted(dir string) bool {
	var a, b unix.Stat_t
	if unix.Stat(dir, &a) != nil || unix.Stat(filepath.Dir(dir), &b) != nil {
		return false
	}
	return a.Dev != b.Dev
}

// sysctls applies every NAME = VALUE line of dir's *.conf files, in order.
func sysctls(dir string) error {
	names, _ := filepath.Glob(filepath.Join(dir, "*.conf"))
	sort.Strings(names)
	var firstErr error
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			k, v, ok := parseSysctl(sc.Text())
			if !ok {
				continue
			}
			if err := os.WriteFile("/proc/sys/"+k, []byte(v), 0); err != nil && firstErr == nil {
				firstErr = err
			}
		}
		f.Close()
	}
	return firstErr
}

func parseSysctl(line string) (path, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return "", "", false
	}
	k, v, ok := strings.Cut(strings.TrimPrefix(line, "-"), "=")
	k = strings.TrimSpace(k)
	if !ok || k == "" || strings.Contains(k, "..") {
		return "", "", false
	}
	if !strings.Contains(k, "/") {
		k = strings.ReplaceAll(k, ".", "/")
	}
	return k, strings.TrimSpace(v), true
}

const cgroupRoot = "/sys/fs/cgroup/glasshouse"

// reserveKiB of memory stay out of reach of commands, so that guestd answers
// when they ate everything else.
const reserveKiB = 160 << 10

// cgroups makes the subtree of executions. Its memory limit leaves guestd room.
func cgroups() error {
	const want = "+cpu +memory +pids"
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte(want), 0); err != nil {
		return err
	}
	if err := os.MkdirAll(cgroupRoot, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte(want), 0); err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib > 2*reserveKiB {
			if err := os.WriteFile(cgroupRoot+"/memory.max", []byte(strconv.FormatInt((kib-reserveKiB)<<10, 10)), 0); err != nil {
				return err
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return os.WriteFile(cgroupRoot+"/pids.max", []byte(strconv.Itoa(n*9/10)), 0)
		}
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

// listenLink listens on the link alone, so that no process of the guest can
// connect: what goes over the loopback never arrives on it.
func listenLink(link string, port int) (*os.File, error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return errors.Join(rc.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) }), err)
	}}
	var err error
	for n := 0; n < 100; n++ { // the link may come up a moment later
		var l net.Listener
		if l, err = lc.Listen(context.Background(), "tcp4", ":"+strconv.Itoa(port)); err == nil {
			f, err := l.(*net.TCPListener).File()
			l.Close()
			return f, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("the channel cannot listen on %s: %w", link, err)
}

func startLima() {
	if _, err := os.Stat(limaInit); err != nil {
		return
	}
	out, err := os.OpenFile("/var/log/lima-init.out", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		log.Printf("init: %v", err)
		return
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer null.Close()
	_, err = syscall.ForkExec(limaInit, []string{"lima-init"}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		log.Printf("init: lima-init: %v", err)
	}
}

// powerOff ends the machine with its file systems whole.
func powerOff() {
	log.Print("init: powering off")
	syscall.Kill(-1, syscall.SIGTERM)
	for n := 0; n < 10; n++ {
		reap(-1)
		if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err == syscall.ECHILD {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	syscall.Kill(-1, syscall.SIGKILL)
	syscall.Sync()
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		// Somebody still writes: let the kernel do it by force.
		if err := os.WriteFile("/proc/sysrq-trigger", []byte("u"), 0); err != nil {
			log.Printf("init: the disk stays writable at power-off: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	syscall.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		log.Printf("init: the machine cannot be powered off: %v", err)
	}
	for {
		time.Sleep(time.Hour) // never return from pid 1
	}
}
