package lima

import (
	_ "embed"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"glasshouse/vm"
)

//go:embed testdata/lima-args.txt
var recordedArgs string

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	p := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (write it with -update):\n%s", name, got)
	}
}

func TestYAMLGolden(t *testing.T) {
	img := Image{Hash: "cafe", Disk: "/d/玻璃 i/disk.qcow2", Kernel: "/d/vmlinux", Initrd: "/d/initrd: x.img", Args: "console=ttyS0 quiet", ArgsEmulated: "mitigations=off"}
	s := vm.Spec{ID: "abc", Hostname: "glass", CPUs: 3, MemoryMiB: 1536, DiskGiB: 20}
	for file, v := range map[string]version{"lima-1.2.2.yaml": {1, 2, 2}, "lima-2.1.3.yaml": {2, 1, 3}} {
		y, err := writeYAML(s, img, cmdline(s, img, "tcg"), cpuFor("tcg"), v)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, file, string(y))
		var back map[string]any
		if err := yaml.Unmarshal(y, &back); err != nil {
			t.Fatal(err)
		}
		if back["plain"] != true || back["propagateProxyEnv"] != false {
			t.Errorf("%v", back)
		}
	}
	if strings.Contains(cmdline(s, img, "kvm"), "mitigations") {
		t.Error("mitigations are off under hardware acceleration")
	}
	golden(t, "networks.yaml", networksYAML)
}

func TestRewriteGolden(t *testing.T) {
	for _, accel := range []string{"tcg", "kvm"} {
		out, mac, err := RewriteQEMUArgs(limaArgs("/d/l/gh"), Rewrite{Accel: accel, InstanceDir: "/d/l/gh", Sandbox: true})
		if err != nil {
			t.Fatal(err)
		}
		if mac != "52:55:55:fb:bd:0d" {
			t.Error(mac)
		}
		golden(t, "qemu-"+accel+".txt", strings.Join(out, "\n")+"\n")
	}
}

// devices of a command line, by name, the disk included.
func devices(args []string) (d []string) {
	for i := range len(args) - 1 {
		switch args[i] {
		case "-device", "-drive", "-netdev", "-chardev":
			name, _, _ := strings.Cut(args[i+1], ",")
			d = append(d, args[i]+" "+name)
		case "-fsdev", "-virtfs", "-usbdevice", "-audiodev", "-vnc", "-spice", "-monitor", "-gdb", "-net", "-nic", "-incoming":
			d = append(d, args[i])
		}
	}
	return d
}

func TestDeviceAllowList(t *testing.T) {
	out, _, err := RewriteQEMUArgs(limaArgs("/d"), Rewrite{Accel: "tcg", InstanceDir: "/d", Sandbox: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-drive file=/d/diffdisk", "-netdev socket", "-device virtio-net-pci", "-device virtio-rng-pci", "-chardev socket", "-chardev socket"}
	if got := devices(out); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("devices: %q", got)
	}
	all := " " + strings.Join(out, " ") + " "
	for _, s := range []string{" -nodefaults ", " -no-user-config ", " -sandbox on,", " -display none ", " -no-reboot ", "usb=off", "format=qcow2"} {
		if !strings.Contains(all, s) {
			t.Errorf("no %q in %s", s, all)
		}
	}
}

func TestRewriteRefuses(t *testing.T) {
	base := limaArgs("/d")
	with := func(extra ...string) []string { return append(append([]string{}, base...), extra...) }
	swap := func(from, to string) []string {
		out := append([]string{}, base...)
		n := 0
		for i := range out {
			if strings.Contains(out[i], from) {
				out[i] = strings.ReplaceAll(out[i], from, to)
				n++
			}
		}
		if n == 0 {
			t.Fatalf("%q is not in Lima's arguments", from)
		}
		return out
	}
	for name, args := range map[string][]string{
		"slirp":                    with("-netdev", "user,id=net1"),
		"slirp as the first":       swap("socket,id=net0,fd=3", "user,id=net0"),
		"tap":                      swap("socket,id=net0,fd=3", "tap,id=net0,fd=3"),
		"a connecting socket":      swap("socket,id=net0,fd=3", "socket,id=net0,connect=:1234"),
		"a second card":            with("-device", "virtio-net-pci,netdev=net0,mac=52:55:55:00:00:01"),
		"e1000":                    with("-device", "e1000,netdev=net0"),
		"9p":                       with("-virtfs", "local,path=/,mount_tag=x,security_model=none"),
		"virtiofs":                 with("-device", "vhost-user-fs-pci,chardev=c,tag=x"),
		"USB":                      with("-device", "usb-host"),
		"vfio":                     with("-device", "vfio-pci,host=01:00.0"),
		"audio":                    with("-audiodev", "pa,id=a"),
		"VNC":                      with("-vnc", ":1"),
		"monitor":                  with("-monitor", "stdio"),
		"another QMP":              with("-qmp", "tcp:localhost:4444,server"),
		"gdb":                      with("-gdb", "tcp::1234"),
		"incoming":                 with("-incoming", "exec:cat x"),
		"global":                   with("-global", "virtio-blk-pci.x=y"),
		"object":                   with("-object", "memory-backend-file,id=m,mem-path=/x,size=1G"),
		"fw_cfg":                   with("-fw_cfg", "name=x,file=/etc/shadow"),
		"read config":              with("-readconfig", "/x"),
		"another disk":             with("-drive", "file=/etc/shadow,if=virtio,format=raw"),
		"disk elsewhere":           swap("/d/diffdisk", "/e/diffdisk"),
		"disk through a parent":    swap("/d/diffdisk", "/d/../e/diffdisk"),
		"CD-ROM that is writable":  swap("readonly=on", "readonly=off"),
		"kernel elsewhere":         swap("/d/kernel", "/e/kernel"),
		"pid file elsewhere":       swap("/d/qemu.pid", "/e/qemu.pid"),
		"console log elsewhere":    swap("/d/serial.log", "/e/serial.log"),
		"monitor socket elsewhere": swap("/d/qmp.sock", "/e/qmp.sock"),
		"pipe as console":          swap("socket,id=char-serial,", "pipe,id=char-serial,"),
		"unknown character device": with("-chardev", "socket,id=x,path=/d/x"),
		"odd MAC":                  swap("mac=52:55:55:fb:bd:0d", "mac=x"),
		"card with extras":         swap("mac=52:55:55:fb:bd:0d", "mac=52:55:55:fb:bd:0d,romfile=/x"),
		"rng with extras":          swap("virtio-rng-pci", "virtio-rng-pci,rng=r0"),
		"odd memory":               swap("2048", "2048,slots=2 -x"),
		"no value":                 with("-snapshot"),
		"stray word":               with("disk.img", "x"),
		"no disk":                  base[:8],
		"nothing":                  nil,
	} {
		if out, _, err := RewriteQEMUArgs(args, Rewrite{Accel: "tcg", InstanceDir: "/d"}); err == nil {
			t.Errorf("%s was taken: %q", name, out)
		}
	}
	if _, _, err := RewriteQEMUArgs(base, Rewrite{Accel: "xen", InstanceDir: "/d"}); err == nil {
		t.Error("an unknown accelerator was taken")
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("-device", "virtio-rng-pci")
	f.Add("-chardev", "socket,id=char-serial,path=/d/s,logfile=/d/l")
	f.Add("-drive", "file=/d/diffdisk,if=virtio")
	f.Fuzz(func(t *testing.T, k, v string) {
		out, _, err := RewriteQEMUArgs(append(limaArgs("/d"), k, v), Rewrite{Accel: "tcg", InstanceDir: "/d"})
		if err != nil {
			return
		}
		for _, d := range devices(out) {
			switch d {
			case "-drive file=/d/diffdisk", "-netdev socket", "-device virtio-net-pci", "-device virtio-rng-pci", "-chardev socket":
			default:
				t.Fatalf("%q %q brought in %q", k, v, d)
			}
		}
	})
}

func TestQuestionsGoToQEMU(t *testing.T) {
	for args, want := range map[string]bool{
		"-M none -accel help":             true,
		"-M none -netdev help":            true,
		"-machine help":                   true,
		"-cpu help -machine q35":          true,
		"--version":                       true,
		"":                                false,
		"-m 100":                          false,
		"-cpu help -pidfile /x":           false,
		"-name help -drive file=x":        false,
		"-name --version -kernel /x":      false,
		strings.Join(limaArgs("/d"), " "): false,
		strings.Join(limaArgs("/d"), " ") + " help": false,
	} {
		if got := asksOnly(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
	for _, bad := range [][]string{nil, {"-real", "qemu"}, {"-real", "/bin/true"}, {"-nonsense"}, {"-real", "/bin/true", "-dir", "/d", "-accel", "tcg", "--", "-m", "1"}} {
		if err := QEMUMain(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestWrapperScript(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "o'dd 玻璃 $HOME `x`")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	show := "#!/bin/sh\nprintf '%s|' \"${0##*/}\" \"$@\"\n"
	self, real := put("self", show), put("real", show)
	w := put("w", wrapperScript(self, real, dir, dir+"/mac", Acceleration{Name: "tcg", Sandbox: true}))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-M", "none", "-accel", "help"}, "real|-M|none|-accel|help|"},
		{[]string{"--version"}, "real|--version|"},
		{[]string{"-m", "1 2", "-pidfile", "x"}, "self|qemu|-real|" + real + "|-dir|" + dir + "|-macfile|" + dir + "/mac|-accel|tcg|-sandbox=true|--|-m|1 2|-pidfile|x|"},
		{[]string{"-m", "1"}, "self|qemu|-real|" + real + "|-dir|" + dir + "|-macfile|" + dir + "/mac|-accel|tcg|-sandbox=true|--|-m|1|"},
		{[]string{"-append", "a help b", "-pidfile", "x"}, "self|qemu|-real|" + real + "|-dir|" + dir + "|-macfile|" + dir + "/mac|-accel|tcg|-sandbox=true|--|-append|a help b|-pidfile|x|"},
	} {
		out, err := exec.Command(w, tt.args...).CombinedOutput()
		if err != nil || string(out) != tt.want {
			t.Errorf("%q: %s %v", tt.args, out, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for in, want := range map[string]string{
		"limactl version 1.2.2\n": "1.2.2", "limactl version v2.1.3": "2.1.3", "limactl version 2.0.0-beta.1-5-gabc": "2.0.0",
		"limactl version <unknown>": "1.2.2", "limactl version 1.0.7": "", "limactl version 0.23.2": "", "": "", "bash: no such file": "",
	} {
		v, err := parseVersion(in)
		if (err != nil) != (want == "") || err == nil && v.String() != want {
			t.Errorf("%q: %v %v", in, v, err)
		}
	}
}

func TestProbe(t *testing.T) {
	hw := candidates()[0]
	for _, tt := range []struct {
		name    string
		probe   map[string]string
		want    string
		because string
	}{
		{"hardware works", map[string]string{hw: "ok", "tcg": "ok"}, hw, "came up"},
		{"hardware alone works", map[string]string{hw: "ok", "tcg": "die"}, hw, "came up"},
		{"guests hang on it", map[string]string{hw: "hang", "tcg": "ok"}, "tcg", "guests hang on it"},
		{"hardware fails", map[string]string{hw: "die", "tcg": "ok"}, "tcg", "no "},
		{"nothing works", map[string]string{hw: "die", "tcg": "die"}, "", "no "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if hw == "kvm" {
				if _, err := os.Stat("/dev/kvm"); err != nil && tt.probe[hw] != "die" {
					t.Skip("there is no /dev/kvm here, so hardware is not tried")
				}
			}
			w := newWorld(t, behaviour{Probe: tt.probe})
			if tt.probe[hw] == "ok" {
				w.m.hangAfter = time.Hour // on a busy computer emulation may come up first by any time
			}
			a, err := w.m.Probe(t.Context(), w.img)
			if (err != nil) != (tt.want == "") || a.Name != tt.want {
				t.Fatalf("%+v %v", a, err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "no tcg here") {
					t.Error(err)
				}
				return
			}
			if !strings.Contains(a.Tried[hw], tt.because) && !strings.Contains(a.Tried[hw], "/dev/kvm") {
				t.Errorf("%v", a.Tried)
			}
			if w.m.Features().Accelerator != tt.want {
				t.Error("Features does not know")
			}
		})
	}
}

func TestProbeIsRemembered(t *testing.T) {
	w := newWorld(t, behaviour{})
	if f := w.m.Features(); f.Accelerator != "" || !f.VM {
		t.Fatalf("before any probe: %+v", f)
	}
	if _, err := w.m.Probe(t.Context(), w.img); err != nil {
		t.Fatal(err)
	}
	n := len(w.m.opt.Runner.Records())
	m := w.manager(nil)
	if a, err := m.Probe(t.Context(), w.img); err != nil || a.Name != "tcg" || len(m.opt.Runner.Records()) != 0 {
		t.Fatalf("%+v %v, %d programs started", a, err, len(m.opt.Runner.Records()))
	}
	if n == 0 {
		t.Fatal("the first probe started nothing")
	}
	// Another kernel is another question.
	if err := os.WriteFile(w.img.Kernel, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Probe(t.Context(), w.img); err != nil || len(m.opt.Runner.Records()) == 0 {
		t.Fatal("the old answer was used for a new kernel", err)
	}
	// So is another boot of the host, and a damaged file is no answer.
	p := filepath.Join(w.m.opt.Root, accelFile)
	b, _ := os.ReadFile(p)
	for _, s := range []string{strings.Replace(string(b), bootID(), "earlier", 1), "{", ""} {
		_ = os.WriteFile(p, []byte(s), 0o600)
		if f := m.Features(); f.Accelerator != "" {
			t.Errorf("%q was believed", s)
		}
	}
}

func TestShimsAndText(t *testing.T) {
	if got := printable("a\x1b[31mb\x1b]0;x\ac\r\nd\u202ee\xff"); strings.ContainsAny(got, "\x1b\a\r\u202e") || !strings.Contains(got, "ab") {
		t.Errorf("%q", got)
	}
	if w := warnings(`{"level":"debug","msg":"x"}` + "\n" + `{"level":"warning","msg":"careful","error":"why"}` + "\n" + `{"level":"debug","msg":"qemu[stderr]: no"}` + "\nnot json"); w != "careful why\nqemu[stderr]: no" {
		t.Errorf("%q", w)
	}
}

func TestQMPErrors(t *testing.T) {
	if _, err := qmp(filepath.Join(t.TempDir(), "none"), time.Second, command{Execute: "quit"}); err == nil {
		t.Error("no monitor, no error")
	}
	w := newWorld(t, behaviour{})
	x := w.create("qmp")
	w.start(x)
	if _, err := qmp(x.l.in("qmp.sock"), time.Minute, command{Execute: "nonsense"}); err == nil || !strings.Contains(err.Error(), "no such command") {
		t.Error(err)
	}
}
