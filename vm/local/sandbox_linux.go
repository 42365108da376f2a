//go:build amd64 || arm64

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm"
	"glasshouse/vm/proc"
)

const (
	logName = "sandbox.log"
	// logKeep is the size from which a log is turned over at a start.
	logKeep = 1 << 20
	// infoPatience is how long bwrap may take to say which process it made.
	infoPatience = 20 * time.Second
	// guestUID is the agent's uid and gid inside, as in the image.
	guestUID = 1000
)

// Descriptors that bwrap gets; it closes all of them before guestd runs.
const (
	fdInfo    = 3
	fdBlock   = 4
	fdSeccomp = 5
)

// launch starts bwrap, puts limits on its child while that still waits, notes
// both in run.json, and lets go.
func (mc *machine) launch(ctx context.Context, progress func(vm.Progress)) (err error) {
	report(progress, "image", "Looking for the guest image")
	rootfs, hash, err := mc.m.o.RootFS(ctx, mc.spec.ImageHash, progress)
	if err != nil {
		return fmt.Errorf("machine %s cannot start without its image: %w", mc.id, err)
	}
	guestd, err := mc.m.o.Guestd(ctx)
	if err != nil {
		return fmt.Errorf("machine %s cannot start without guestd: %w", mc.id, err)
	}
	for _, p := range []string{mc.dir, rootfs, filepath.Dir(guestd)} {
		if err := mc.m.passable(p); err != nil {
			return err
		}
	}
	if err := mc.writeEtc(rootfs); err != nil {
		return err
	}
	argv, err := mc.args(rootfs, guestd)
	if err != nil {
		return err
	}
	filter, err := filterBytes()
	if err != nil {
		return err
	}
	log, err := mc.openLog()
	if err != nil {
		return err
	}
	defer log.Close()

	var files pipes
	defer files.close()
	info, infoEnd, err := files.pipe()
	if err != nil {
		return err
	}
	blockEnd, block, err := files.pipe()
	if err != nil {
		return err
	}
	seccompEnd, seccomp, err := files.pipe()
	if err != nil {
		return err
	}
	if _, err := seccomp.Write(filter); err != nil { // far less than a pipe holds
		return fmt.Errorf("cannot hand the filter of system calls to bwrap: %w", err)
	}
	_ = seccomp.Close()

	report(progress, "boot", "Starting the sandbox")
	sealDescriptors()
	mon, err := mc.m.o.Runner.Start(context.WithoutCancel(ctx), proc.Cmd{
		Role: "bwrap", Path: "bwrap", Args: argv, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Stdout: log, Stderr: log, Files: []*os.File{infoEnd, blockEnd, seccompEnd},
		User: mc.m.o.User, Detach: true,
	})
	if err != nil {
		return err
	}
	for _, f := range []*os.File{infoEnd, blockEnd, seccompEnd} {
		_ = f.Close()
	}
	child := 0
	defer func() {
		if err == nil {
			return
		}
		// Closing the pipe would let the child run, so it is killed first.
		if child > 0 {
			_ = unix.Kill(child, unix.SIGKILL) // our own waiting child's child: the pid cannot be anybody else's yet
		}
		_ = mon.Kill()
		<-mon.Done()
	}()
	child, err = readChild(info)
	if err != nil {
		return fmt.Errorf("the sandbox of machine %s did not start: %w. %s", mc.id, err, mc.logEnd())
	}
	r := run{BootID: hostBootID(), Started: time.Now().UTC(), Image: hash, Guestd: guestd}
	var ok bool
	if r.Init, ok = identify(child); !ok {
		return fmt.Errorf("the sandbox of machine %s ended at once. %s", mc.id, mc.logEnd())
	}
	if r.Monitor, ok = identify(mon.Pid()); !ok {
		return fmt.Errorf("bwrap of machine %s ended at once. %s", mc.id, mc.logEnd())
	}
	if r.Cgroups, err = mc.m.groups.confine(mc.id, child, mc.spec); err != nil {
		mc.m.o.Log.Warn("no control group for a machine; only limits per process hold", "id", mc.id, "err", err)
	}
	if err := mc.limit(ctx, child); err != nil {
		return err
	}
	if err := writeJSON(mc.runPath(), r); err != nil {
		return err
	}
	if _, err := block.Write([]byte{1}); err != nil {
		return fmt.Errorf("the sandbox of machine %s ended before it ran: %w. %s", mc.id, err, mc.logEnd())
	}
	return nil
}

// args of bwrap. Everything is in argv, so that the record of what was started
// tells the whole sandbox; there is no secret in it.
func (mc *machine) args(rootfs, guestd string) ([]string, error) {
	if fi, err := os.Stat(guestd); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("guestd is not at %s; build it with 'make guestd'", guestd)
	}
	uid := strconv.Itoa(guestUID)
	a := []string{
		"--unshare-user", "--uid", uid, "--gid", uid,
		"--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup",
		"--hostname", mc.spec.Hostname,
		// guestd is pid 1. --die-with-parent is left out on purpose: the sandbox outlives the core.
		"--as-pid-1", "--new-session", "--cap-drop", "ALL",
		"--info-fd", strconv.Itoa(fdInfo), "--block-fd", strconv.Itoa(fdBlock), "--seccomp", strconv.Itoa(fdSeccomp),
		"--clearenv",
		"--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"--setenv", "HOME", "/home/agent", "--setenv", "USER", "agent", "--setenv", "LANG", "C.UTF-8",
		"--ro-bind", filepath.Join(rootfs, "usr"), "/usr",
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if fi, err := os.Stat(filepath.Join(rootfs, "usr", name)); err == nil && fi.IsDir() {
			a = append(a, "--symlink", "usr/"+name, "/"+name)
		}
	}
	a = append(a, "--ro-bind", filepath.Join(rootfs, "etc"), "/etc")
	for _, f := range etcFiles {
		a = append(a, "--ro-bind", filepath.Join(mc.dir, "etc", f.name), "/etc/"+f.name)
	}
	a = append(a,
		"--proc", "/proc", "--dev", "/dev",
		"--size", strconv.Itoa(512<<20), "--perms", "1777", "--tmpfs", "/dev/shm",
		"--size", strconv.Itoa(2<<30), "--perms", "1777", "--tmpfs", "/tmp",
		"--dir", "/run", "--perms", "1777", "--dir", "/var/tmp", "--dir", "/root",
		"--bind", filepath.Join(mc.dir, "home"), "/home/agent",
		"--bind", filepath.Join(mc.dir, "workspace"), "/workspace",
		"--bind", filepath.Join(mc.dir, "var"), "/var/lib/glasshouse",
		"--bind", filepath.Join(mc.dir, "chan"), "/run/glasshouse",
		"--ro-bind", guestd, GuestdPath,
		"--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace",
		"--", GuestdPath, "init", "--sandbox", "--socket", insideSocket, "--state", "/var/lib/glasshouse",
	)
	return a, nil
}

// limit sets the limits that each process of the sandbox inherits. They are set
// on the waiting child and not on bwrap, because the number of processes is
// counted per user namespace: inside, only the machine's own count. prlimit(1)
// runs as the sandbox's user, who may do this to his own processes, where a root
// without CAP_SYS_RESOURCE may not.
func (mc *machine) limit(ctx context.Context, pid int) error {
	args := []string{"--pid", strconv.Itoa(pid)}
	set := func(name string, resource int, want uint64) {
		var own unix.Rlimit
		if unix.Getrlimit(resource, &own) == nil && own.Max < want {
			want = own.Max // raising needs rights we lack
		}
		args = append(args, fmt.Sprintf("--%s=%d:%d", name, want, want))
	}
	set("core", unix.RLIMIT_CORE, 0)
	set("nproc", unix.RLIMIT_NPROC, MaxPids)
	set("nofile", unix.RLIMIT_NOFILE, 8192)
	set("fsize", unix.RLIMIT_FSIZE, uint64(mc.spec.DiskGiB)<<30)
	if _, hard := mc.m.groups.describe(); !hard {
		// Per process, as nothing counts the machine as a whole. Not the address
		// space: a browser reserves far more of it than it uses.
		set("data", unix.RLIMIT_DATA, uint64(mc.spec.MemoryMiB)<<20)
	}
	_, err := mc.m.o.Runner.Run(ctx, proc.Cmd{Role: "prlimit", Path: "prlimit", Args: args, Dir: "/", User: mc.m.o.User})
	if err != nil {
		return fmt.Errorf("machine %s cannot be given its limits, so it is not started: %w", mc.id, err)
	}
	return nil
}

// readChild reads what bwrap says of the sandbox it made.
func readChild(f *os.File) (int, error) {
	if err := f.SetReadDeadline(time.Now().Add(infoPatience)); err != nil {
		return 0, err
	}
	var buf bytes.Buffer
	_, err := io.Copy(&buf, io.LimitReader(f, 64<<10))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("bwrap said nothing for %s", infoPatience)
	}
	if err != nil {
		return 0, err
	}
	if buf.Len() == 0 {
		return 0, errors.New("bwrap ended")
	}
	var info struct {
		ChildPid int `json:"child-pid"`
	}
	if err := json.Unmarshal(buf.Bytes(), &info); err != nil || info.ChildPid <= 1 {
		return 0, fmt.Errorf("bwrap said %q instead of its child's pid", buf.Bytes())
	}
	return info.ChildPid, nil
}

// sealDescriptors marks every descriptor of ours to be closed in programs we
// start. Go's own are so already; those that we were started with are not, and
// bwrap passes everything on: an open file of the host would be inside.
func sealDescriptors() {
	if err := unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC); err == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func (mc *machine) openLog() (*os.File, error) {
	path := filepath.Join(mc.dir, "log", logName)
	if fi, err := os.Lstat(path); err == nil && fi.Size() > logKeep {
		_ = os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the machine's log: %w", err)
	}
	return f, nil
}

// tail returns the last n bytes of a file.
func tail(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if over := fi.Size() - n; over > 0 {
		if _, err := f.Seek(over, io.SeekStart); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, n))
	return bytes.TrimSpace(b), err
}

// pipes closes what was opened for one start.
type pipes []*os.File

func (p *pipes) pipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("cannot make a pipe for bwrap: %w", err)
	}
	*p = append(*p, r, w)
	return r, w, nil
}

func (p pipes) close() {
	for _, f := range p {
		_ = f.Close()
	}
}
