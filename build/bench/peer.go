package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// lima is plain Lima with its own network, in a home of its own.
type lima struct {
	run     *proc.Runner
	user    *proc.User // limactl refuses root
	limactl string
	home    string
	env     []string
	yaml    string
	started map[string]bool
}

// serviceUser is whom Lima runs as here: nobody else's business for an ordinary user.
func serviceUser(home string) (*proc.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("glasshouse")
	if err != nil {
		return nil, fmt.Errorf("limactl refuses root, and the service user that the core makes is missing: %w", err)
	}
	id := func(s string) uint32 { n, _ := strconv.ParseUint(s, 10, 32); return uint32(n) }
	p := &proc.User{UID: id(u.Uid), GID: id(u.Gid), Name: u.Username, Home: home}
	if p.UID == 0 {
		return nil, fmt.Errorf("user glasshouse (uid %s) cannot run limactl", u.Uid)
	}
	if g, err := user.LookupGroup("kvm"); err == nil {
		p.Groups = append(p.Groups, id(g.Gid))
	}
	return p, nil
}

// newLima prepares a home below dir. img must be readable by the service user;
// accel is what Glasshouse found to work here, so that both run alike.
func newLima(run *proc.Runner, bin, dir string, img *image.Image, accel string) (*lima, error) {
	l := &lima{run: run, home: filepath.Join(dir, "l"), limactl: filepath.Join(dir, "limactl"), yaml: filepath.Join(dir, "plain.yaml"), started: map[string]bool{}}
	userHome := filepath.Join(dir, "h")
	var err error
	if l.user, err = serviceUser(userHome); err != nil {
		return nil, err
	}
	for _, d := range []string{l.home, userHome} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
		if l.user != nil {
			if err := os.Chown(d, int(l.user.UID), int(l.user.GID)); err != nil {
				return nil, err
			}
		}
	}
	if err := copyProgram(filepath.Join(bin, "lima/bin/limactl"), l.limactl); err != nil {
		return nil, err
	}
	arch, qemu := "x86_64", "qemu-system-x86_64 -machine q35,vmport=off -accel tcg,thread=multi,tb-size=512"
	cpu, args := "host", image.KernelArgs
	if runtime.GOARCH == "arm64" {
		arch, qemu = "aarch64", "qemu-system-aarch64 -machine virt -accel tcg,thread=multi,tb-size=512"
	}
	l.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + userHome, "LANG=C.UTF-8", "LIMA_HOME=" + l.home}
	if accel == "tcg" {
		// Lima wants KVM on Linux; its own variable for QEMU's program takes arguments.
		l.env = append(l.env, "QEMU_SYSTEM_X86_64="+qemu, "QEMU_SYSTEM_AARCH64="+qemu)
		args += " " + image.KernelArgsEmulated
		cpu = "max"
		if arch == "x86_64" {
			cpu = "max,la57=off"
		}
	}
	y := fmt.Sprintf(`vmType: qemu
arch: %[1]s
plain: true
images:
- location: %[2]q
  arch: %[1]s
  kernel: {location: %[3]q, cmdline: %[4]q}
  initrd: {location: %[5]q}
cpuType: {%[1]s: %[6]q}
cpus: %[7]d
memory: %[8]dMiB
disk: %[9]dGiB
firmware: {legacyBIOS: true}
mounts: []
containerd: {system: false, user: false}
ssh: {localPort: 0, loadDotSSHPubKeys: false}
user: {name: lima, uid: 1001, home: /home/lima}
video: {display: none}
`, arch, img.QCOW2, img.Kernel, args, img.Initrd, cpu, cpus, memoryMiB, diskGiB)
	return l, os.WriteFile(l.yaml, []byte(y), 0o644)
}

// copyProgram puts a program where the service user can run it.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

func (l *lima) version(ctx context.Context) (string, error) {
	r, err := l.run.Run(ctx, proc.Cmd{Role: "bench", Path: l.limactl, Args: []string{"--version"}, User: l.user, Env: l.env, Dir: "/"})
	return strings.TrimSpace(string(r.Stdout)), err
}

func (l *lima) do(ctx context.Context, program string, args ...string) error {
	_, err := l.run.Run(ctx, proc.Cmd{Role: "bench", Path: program, Args: args, User: l.user, Env: l.env, Dir: "/"})
	return err
}

// start makes and starts a new instance; it returns when Lima says READY.
func (l *lima) start(ctx context.Context, name string) (time.Duration, error) {
	l.started[name] = true
	begin := time.Now()
	// The host agent keeps limactl's standard error open, so it goes to a file.
	log, err := os.OpenFile(filepath.Join(l.home, "..", "limactl.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	_, err = l.run.Run(ctx, proc.Cmd{Role: "bench", Path: l.limactl, Args: []string{"--tty=false", "start", "--name=" + name, l.yaml},
		User: l.user, Env: l.env, Dir: "/", Stdout: log, Stderr: log})
	took := time.Since(begin)
	if err != nil {
		b, _ := os.ReadFile(log.Name())
		return 0, fmt.Errorf("limactl start: %w\n%s", err, b[max(0, len(b)-2000):])
	}
	return took, nil
}

// shell runs the no-op as Lima does.
func (l *lima) shell(ctx context.Context, name string) error {
	return l.do(ctx, l.limactl, "shell", name, noop)
}

// mux runs the no-op by ssh over the master connection that is open already; it
// fails where there is none, for then it would measure something else.
func (l *lima) mux(ctx context.Context, name string) error {
	return l.do(ctx, "ssh", "-F", filepath.Join(l.home, name, "ssh.config"), "-o", "ControlMaster=no", "-o", "ProxyCommand=false", "lima-"+name, noop)
}

func (l *lima) remove(ctx context.Context, name string) error {
	if err := l.do(ctx, l.limactl, "--tty=false", "delete", "-f", name); err != nil {
		return err
	}
	delete(l.started, name)
	return nil
}
