package lima

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"glasshouse/vm"
	"glasshouse/vm/netd"
	"glasshouse/vm/netd/netdtest"
	"glasshouse/vm/proc"
)

// behaviour of the fake programs; they read it from "fake.json" beside them.
type behaviour struct {
	Version string            // of limactl
	Probe   map[string]string // by accelerator: "ok", "die" or "hang"
	Boot    string            // "ok", "die", "mute", or "still": mute the first time
	Off     string            // what the magic keys do: "works" or "nothing"
}

func fakeBehaviour() behaviour {
	b := behaviour{Version: "1.2.2", Boot: "ok", Off: "works"}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "fake.json"))
	if err == nil {
		_ = json.Unmarshal(data, &b)
	}
	return b
}

// fakeLimactl does what matters of limactl 1.2.2: it becomes the host agent,
// which connects to the network, asks QEMU questions and starts it.
func fakeLimactl(args []string) error {
	line := strings.Join(args, " ")
	home := os.Getenv("LIMA_HOME")
	inst := filepath.Join(home, instName)
	pidFile := filepath.Join(inst, "ha.pid")
	switch line {
	case "--version":
		fmt.Println("limactl version " + fakeBehaviour().Version)
		return nil
	case "--tty=false start --foreground " + instName:
		for _, f := range []string{"lima.yaml", "kernel", "initrd", "basedisk", "diffdisk", "kernel.cmdline"} {
			if _, err := os.Stat(filepath.Join(inst, f)); err != nil {
				return err
			}
		}
		if _, err := os.Stat(pidFile); err == nil {
			return errors.New("instance \"gh\" seems running")
		}
		return syscall.Exec(os.Args[0], []string{os.Args[0], "hostagent", "--pidfile", pidFile, instName}, os.Environ())
	case "hostagent --pidfile " + pidFile + " " + instName:
	default:
		return fmt.Errorf("unexpected limactl arguments %q", args)
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(pidFile)
	qemu := strings.ReplaceAll(strings.Trim(os.Getenv("QEMU_SYSTEM_X86_64"), "'"), `'\''`, "'")
	if out, err := exec.Command(qemu, "-M", "none", "-accel", "help").CombinedOutput(); err != nil || !strings.Contains(string(out), "tcg") {
		return fmt.Errorf("qemu -accel help: %s %w", out, err)
	}
	// ssh and its keys are asked for before a start.
	if out, err := exec.Command("ssh", "-V").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "OpenSSH_9") {
		return fmt.Errorf("ssh -V: %s %w", out, err)
	}
	key := filepath.Join(home, "_config", "user")
	if out, err := exec.Command("ssh-keygen", "-t", "ed25519", "-q", "-N", "", "-C", "lima", "-f", key).CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen: %s %w", out, err)
	}
	if _, err := os.Stat(key + ".pub"); err != nil {
		return err
	}
	c, err := net.Dial("unix", filepath.Join(home, "_networks", instName, instName+"_qemu.sock"))
	if err != nil {
		return err
	}
	fd, err := c.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	c.Close()
	cmd := exec.Command(qemu, limaArgs(inst)...)
	cmd.ExtraFiles = []*os.File{fd}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait()
	return nil
}

// limaArgs is Lima's command line for QEMU, as it was recorded.
func limaArgs(inst string) []string {
	b := []byte(recordedArgs)
	return strings.Split(strings.TrimSpace(string(bytes.ReplaceAll(b, []byte("@INST@"), []byte(inst)))), "\n")
}

func fakeQemuImg(args []string) error {
	// create -q -f qcow2 -F qcow2 -b BASE NAME SIZE
	if len(args) != 10 || args[0] != "create" {
		return fmt.Errorf("unexpected qemu-img arguments %q", args)
	}
	gib, err := strconv.Atoi(strings.TrimSuffix(args[9], "G"))
	if err != nil {
		return err
	}
	return os.WriteFile(args[8], qcow2(gib), 0o600)
}

// qcow2 is the header of a disk of that size.
func qcow2(gib int) []byte {
	b := make([]byte, 512)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint64(b[24:], uint64(gib)<<30)
	return b
}

func fakeQEMU(args []string) error {
	get := func(k string) string {
		for i := range len(args) - 1 {
			if args[i] == k {
				return args[i+1]
			}
		}
		return ""
	}
	b := fakeBehaviour()
	if strings.Contains(get("-append"), "probe-me") {
		accel, _, _ := strings.Cut(get("-accel"), ",")
		switch b.Probe[accel] {
		case "ok":
			fmt.Println("PROBE-ANSWER")
			time.Sleep(time.Minute) // power off is not waited for
		case "hang":
			time.Sleep(time.Minute)
		}
		return fmt.Errorf("no %s here", accel)
	}
	if get("-pidfile") == "" {
		fmt.Println("Accelerators supported in QEMU binary:\ntcg\nkvm")
		return nil
	}
	opt := func(v string) map[string]string { return options(v) }
	var serial, log, monitor string
	for i, a := range args {
		if a != "-chardev" {
			continue
		}
		switch o := opt(args[i+1]); o["id"] {
		case "char-serial":
			serial, log = o["path"], o["logfile"]
		case "char-qmp":
			monitor = o["path"]
		}
	}
	if err := os.WriteFile(log, []byte("fake kernel says \x1b[31mhello\x1b[0m\n"), 0o600); err != nil {
		return err
	}
	if b.Boot == "die" {
		return errors.New("the fake QEMU cannot start")
	}
	if err := os.WriteFile(get("-pidfile"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return err
	}
	end := func() {
		_ = os.Remove(get("-pidfile"))
		os.Exit(0)
	}
	ql, err := net.Listen("unix", monitor)
	if err != nil {
		return err
	}
	go serveQMP(ql, end)
	sl, err := net.Listen("unix", serial)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := sl.Accept()
			if err != nil {
				return
			}
			go func() {
				got, _ := io.ReadAll(c)
				if b.Off == "works" && strings.Contains(string(got), "o") {
					end()
				}
			}()
		}
	}()
	wire, err := net.FileConn(os.NewFile(3, "wire"))
	if err != nil {
		return err
	}
	mac := opt(deviceArg(args, "virtio-net-pci"))["mac"]
	g, err := netdtest.Attach(wire, mac, netd.GuestAddr, netd.GatewayAddr)
	if err != nil {
		return err
	}
	if b.Boot == "still" {
		stood := filepath.Join(filepath.Dir(get("-pidfile")), "stood")
		if _, err := os.Stat(stood); err != nil {
			if err := os.WriteFile(stood, nil, 0o600); err != nil {
				return err
			}
			b.Boot = "mute"
		}
	}
	if b.Boot == "mute" {
		select {}
	}
	l, err := g.Listen(netd.DefaultPort)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			s, err := yamux.Server(c, nil)
			if err != nil {
				return
			}
			for {
				st, err := s.Accept()
				if err != nil {
					return
				}
				go func() {
					word, _ := bufio.NewReader(st).ReadString('\n')
					switch word {
					case "off\n":
						end()
					case "disk\n": // appends to the disk and says how long it is
						f, err := os.OpenFile(filepath.Join(filepath.Dir(get("-pidfile")), "diffdisk"), os.O_APPEND|os.O_WRONLY, 0)
						if err == nil {
							_, _ = f.WriteString("x")
							fi, _ := f.Stat()
							fmt.Fprintf(st, "%d\n", fi.Size())
							f.Close()
						}
					}
					st.Close()
				}()
			}
		}()
	}
}

func deviceArg(args []string, name string) string {
	for i := range len(args) - 1 {
		if args[i] == "-device" && strings.HasPrefix(args[i+1], name+",") {
			return args[i+1]
		}
	}
	return ""
}

func serveQMP(l net.Listener, end func()) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, `{"QMP": {"version": {}}}`)
			sc := bufio.NewScanner(c)
			for sc.Scan() {
				fmt.Fprintln(c, `{"timestamp": {}, "event": "SOMETHING"}`)
				if strings.Contains(sc.Text(), `"nonsense"`) {
					fmt.Fprintln(c, `{"error": {"class": "CommandNotFound", "desc": "no such command"}}`)
					continue
				}
				if strings.Contains(sc.Text(), `"query-blockstats"`) {
					fmt.Fprintln(c, `{"return": [{"stats": {"rd_operations": 7, "wr_operations": 1}}]}`)
					continue
				}
				fmt.Fprintln(c, `{"return": {}}`)
				if strings.Contains(sc.Text(), `"quit"`) {
					end()
				}
			}
		}()
	}
}

// world is a data folder with fake programs and a fake image.
type world struct {
	t   *testing.T
	dir string
	bin string
	img Image
	m   *Manager
}

func newWorld(t *testing.T, b behaviour) *world {
	t.Helper()
	return newWorldIn(t, shortTemp(t), b)
}

func newWorldIn(t *testing.T, dir string, b behaviour) *world {
	t.Helper()
	w := &world{t: t, dir: dir, bin: filepath.Join(dir, "bin")}
	for _, d := range []string{w.bin, filepath.Join(dir, "img")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"limactl", "qemu-img", qemuName()} {
		if err := os.Symlink(self, filepath.Join(w.bin, n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", w.bin+":"+os.Getenv("PATH"))
	w.behave(b)
	file := func(name string, data []byte) string {
		p := filepath.Join(dir, "img", name)
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	w.img = Image{Hash: "cafe", Disk: file("disk.qcow2", qcow2(4)), Kernel: file("vmlinux", []byte("kernel")), Initrd: file("initrd.img", []byte("initrd")),
		Args: "console=ttyS0 quiet", ArgsEmulated: "mitigations=off", ProbeArg: "probe-me", ProbeLine: "PROBE-ANSWER"}
	w.m = w.manager(nil)
	return w
}

func (w *world) behave(b behaviour) {
	w.t.Helper()
	if b.Version == "" {
		b.Version = "1.2.2"
	}
	if b.Probe == nil {
		b.Probe = map[string]string{"kvm": "die", "hvf": "die", "tcg": "ok"}
	}
	if b.Boot == "" {
		b.Boot = "ok"
	}
	if b.Off == "" {
		b.Off = "works"
	}
	data, _ := json.Marshal(b)
	if err := os.WriteFile(filepath.Join(w.bin, "fake.json"), data, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) manager(change func(*Options)) *Manager {
	o := Options{
		Root: filepath.Join(w.dir, "m"), Short: filepath.Join(w.dir, "s"), Limactl: filepath.Join(w.bin, "limactl"), Runner: &proc.Runner{},
		Image: func(_ context.Context, hash string, _ func(vm.Progress)) (Image, error) {
			if hash != "" && hash != w.img.Hash {
				return Image{}, fmt.Errorf("no image %q", hash)
			}
			return w.img, nil
		},
		BootTimeout: time.Minute,
		Log:         slog.New(slog.NewTextHandler(&testLog{w: w.t}, nil)),
	}
	if change != nil {
		change(&o)
	}
	m := New(o)
	m.hangAfter = 200 * time.Millisecond
	return m
}

// testLog passes log lines to a test until it ends.
type testLog struct {
	mu sync.Mutex
	w  *testing.T
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w.Context().Err() == nil {
		l.w.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (w *world) create(id string) *Machine {
	w.t.Helper()
	x, err := w.m.Create(w.t.Context(), vm.Spec{ID: id, Hostname: "glass"}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = x.Stop(ctx)
	})
	return x.(*Machine)
}

func (w *world) start(x *Machine) {
	w.t.Helper()
	if err := x.Start(w.t.Context(), nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) state(x vm.Machine) vm.Info {
	w.t.Helper()
	i, err := x.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// until waits for a state.
func (w *world) until(x vm.Machine, s vm.State) vm.Info {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if i := w.state(x); i.State == s {
			return i
		} else if time.Now().After(end) {
			w.t.Fatalf("waited in vain for %q: %+v", s, i)
		}
	}
}

// say sends one word to the fake guest over the channel and returns its answer.
func (w *world) say(x *Machine, word string) string {
	w.t.Helper()
	c, err := x.Dial(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	s, err := yamux.Client(c, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	st, err := s.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintln(st, word)
	_ = st.SetReadDeadline(time.Now().Add(time.Minute))
	b, _ := io.ReadAll(st)
	return strings.TrimSpace(string(b))
}
