package lima

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"glasshouse/vm"
	"glasshouse/vm/netd"
	"glasshouse/vm/proc"
)

// limaYAML is the part of Lima's instance file that Glasshouse sets.
type limaYAML struct {
	VMType       string            `yaml:"vmType"`
	Arch         string            `yaml:"arch"`
	Plain        bool              `yaml:"plain"`
	Images       []limaImage       `yaml:"images"`
	CPUType      map[string]string `yaml:"cpuType,omitempty"`
	VMOpts       *vmOpts           `yaml:"vmOpts,omitempty"`
	CPUs         int               `yaml:"cpus"`
	Memory       string            `yaml:"memory"`
	Disk         string            `yaml:"disk"`
	Firmware     firmware          `yaml:"firmware"`
	Mounts       []string          `yaml:"mounts"`
	Networks     []limaNetwork     `yaml:"networks"`
	Containerd   containerd        `yaml:"containerd"`
	SSH          ssh               `yaml:"ssh"`
	HostResolver enabled           `yaml:"hostResolver"`
	ProxyEnv     bool              `yaml:"propagateProxyEnv"`
	TimeZone     string            `yaml:"timezone"`
	PortForwards []portForward     `yaml:"portForwards"`
	User         limaUser          `yaml:"user"`
	Video        display           `yaml:"video"`
	Audio        device            `yaml:"audio"`
}

type limaImage struct {
	Location string     `yaml:"location"`
	Arch     string     `yaml:"arch"`
	Kernel   limaKernel `yaml:"kernel"`
	Initrd   location   `yaml:"initrd"`
}

type limaKernel struct {
	Location string `yaml:"location"`
	Cmdline  string `yaml:"cmdline"`
}

type (
	location struct {
		Location string `yaml:"location"`
	}
	vmOpts struct {
		QEMU qemuOpts `yaml:"qemu"`
	}
	qemuOpts struct {
		CPUType map[string]string `yaml:"cpuType"`
	}
	firmware struct {
		LegacyBIOS bool `yaml:"legacyBIOS"`
	}
	limaNetwork struct {
		Lima string `yaml:"lima"`
	}
	containerd struct {
		System bool `yaml:"system"`
		User   bool `yaml:"user"`
	}
	ssh struct {
		LocalPort         int  `yaml:"localPort"`
		LoadDotSSHPubKeys bool `yaml:"loadDotSSHPubKeys"`
		ForwardAgent      bool `yaml:"forwardAgent"`
	}
	enabled struct {
		Enabled bool `yaml:"enabled"`
	}
	portForward struct {
		GuestPortRange [2]int `yaml:"guestPortRange,flow"`
		Proto          string `yaml:"proto"`
		Ignore         bool   `yaml:"ignore"`
	}
	limaUser struct {
		Name string `yaml:"name"`
		UID  int    `yaml:"uid"`
		Home string `yaml:"home"`
	}
	display struct {
		Display string `yaml:"display"`
	}
	device struct {
		Device string `yaml:"device"`
	}
)

func limaArch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// writeYAML makes lima.yaml for one machine.
func writeYAML(s vm.Spec, img Image, cmdline, cpu string, v version) ([]byte, error) {
	cpus := map[string]string{limaArch(): cpu}
	y := limaYAML{
		VMType: "qemu", Arch: limaArch(), Plain: true,
		Images: []limaImage{{Location: img.Disk, Arch: limaArch(), Kernel: limaKernel{Location: img.Kernel, Cmdline: cmdline}, Initrd: location{img.Initrd}}},
		CPUs:   s.CPUs, Memory: fmt.Sprintf("%dMiB", s.MemoryMiB), Disk: fmt.Sprintf("%dGiB", s.DiskGiB),
		Firmware: firmware{LegacyBIOS: true},
		Mounts:   []string{}, Networks: []limaNetwork{{Lima: instName}},
		PortForwards: []portForward{{GuestPortRange: [2]int{1, 65535}, Proto: "any", Ignore: true}},
		User:         limaUser{Name: "lima", UID: 1001, Home: "/home/lima"},
		Video:        display{Display: "none"},
	}
	if v.cpuTypeInVMOpts() {
		y.VMOpts = &vmOpts{QEMU: qemuOpts{CPUType: cpus}}
	} else {
		y.CPUType = cpus
	}
	var b bytes.Buffer
	b.WriteString("# Written by Glasshouse at every start; changes are lost.\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(y); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// networksYAML names the network that netd serves.
const networksYAML = "# Written by Glasshouse.\nnetworks:\n  " + instName + ":\n    mode: user-v2\n    gateway: 192.168.104.1\n    netmask: 255.255.255.0\n"

// cmdline is the kernel's command line of one machine.
func cmdline(s vm.Spec, img Image, accel string) string {
	return fmt.Sprintf("%s gh.ip=%s/%d gh.gw=%s gh.mtu=%d gh.hostname=%s", img.args(accel), netd.GuestAddr, netd.SubnetPrefix, netd.GatewayAddr, netd.DefaultMTU, s.Hostname)
}

// shellQuote makes one word of s for sh and for the parser that Lima uses on
// QEMU_SYSTEM_*.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// wrapperScript stands in for QEMU. Lima asks QEMU many questions before it
// starts it; those go to QEMU directly, only the start itself takes our way.
func wrapperScript(self, real, inst, macFile string, a Acceleration) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# Written by Glasshouse at every start.\n")
	fmt.Fprintf(&b, "case \" $* \" in\n*' -pidfile '*) ;;\n*' help '*|*' --version '*|*' --version') exec %s \"$@\" ;;\nesac\n", shellQuote(real))
	fmt.Fprintf(&b, "exec %s qemu -real %s -dir %s -macfile %s -accel %s -sandbox=%t -- \"$@\"\n",
		shellQuote(self), shellQuote(real), shellQuote(inst), shellQuote(macFile), a.Name, a.Sandbox)
	return b.String()
}

// sshShim stands in for ssh inside Lima's host agent. Lima wants an ssh session
// before it calls an instance ready, and would try for ten minutes; there is no
// ssh into a machine, the channel is the way in.
const sshShim = `#!/bin/sh
# Written by Glasshouse: its machines are not reached by ssh.
case "$1" in -V) echo "OpenSSH_9.0 (none)" >&2 ;; esac
exit 0
`

// keygenShim makes the key pair that Lima insists on, without a key in it.
const keygenShim = `#!/bin/sh
# Written by Glasshouse: its machines have no ssh keys.
while [ $# -gt 1 ]; do [ "$1" = -f ] && f=$2; shift; done
umask 077
echo none >"$f" && echo "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA none" >"$f.pub"
`

// folder writes files below one machine's run folder and gives them to the
// service user. That user, and so a QEMU that a guest took over, can change
// everything in there; os.Root keeps a planted link from leading a core that
// is root out of it.
type folder struct {
	root *os.Root
	user *proc.User
}

func openFolder(dir string, user *proc.User) (folder, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return folder{}, fmt.Errorf("the machine's folder cannot be opened: %w", err)
	}
	return folder{r, user}, nil
}

func (f folder) own(name string) error {
	if f.user == nil {
		return nil
	}
	return f.root.Lchown(name, int(f.user.UID), int(f.user.GID))
}

func (f folder) mkdir(name string) error {
	for i := range strings.Split(name, "/") {
		p := strings.Join(strings.Split(name, "/")[:i+1], "/")
		if err := f.root.Mkdir(p, 0o700); err != nil {
			if os.IsExist(err) {
				continue
			}
			return err
		}
		if err := f.own(p); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) put(name string, data []byte, mode os.FileMode) error {
	w, err := f.create(name, mode)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	if e := w.Close(); err == nil {
		err = e
	}
	return err
}

// create makes a new file in a name's place, open for appending.
func (f folder) create(name string, mode os.FileMode) (*os.File, error) {
	_ = f.root.Remove(name)
	w, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, mode)
	if err != nil {
		return nil, err
	}
	if err = w.Chmod(mode); err == nil {
		err = f.own(name)
	}
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

func (f folder) link(target, name string) error {
	_ = f.root.Remove(name)
	if err := f.root.Symlink(target, name); err != nil {
		return err
	}
	return f.own(name)
}

// prepare writes everything that Lima needs to start the machine. It runs at
// every start, so that a moved image, another limactl or a damaged file heals.
func (l layout) prepare(s vm.Spec, img Image, a Acceleration, v version, self, qemu string, user *proc.User) error {
	f, err := openFolder(l.run, user)
	if err != nil {
		return err
	}
	defer f.root.Close()
	line := cmdline(s, img, a.Name)
	y, err := writeYAML(s, img, line, cpuFor(a.Name), v)
	if err != nil {
		return fmt.Errorf("lima.yaml cannot be made: %w", err)
	}
	rel := l.relRun
	for _, d := range []string{rel(l.inst()), rel(l.net()), rel(filepath.Join(l.home(), "_config")), "bin"} {
		if err := f.mkdir(d); err != nil {
			return fmt.Errorf("the machine's folders cannot be made: %w", err)
		}
	}
	steps := []error{
		f.put(rel(filepath.Join(l.home(), "_config", "networks.yaml")), []byte(networksYAML), 0o600),
		f.put(rel(l.in("lima.yaml")), y, 0o600),
		f.put(rel(l.in("lima-version")), []byte(v.String()+"\n"), 0o600),
		f.put(rel(l.in("kernel.cmdline")), []byte(line), 0o600),
		f.link(img.Kernel, rel(l.in("kernel"))),
		f.link(img.Initrd, rel(l.in("initrd"))),
		f.link(img.Disk, rel(l.in("basedisk"))),
		f.link(l.disk(), rel(l.in("diffdisk"))),
		f.put(rel(l.wrapper()), []byte(wrapperScript(self, qemu, l.inst(), l.macFile(), a)), 0o700),
		f.put("bin/ssh", []byte(sshShim), 0o700),
		f.put("bin/ssh-keygen", []byte(keygenShim), 0o700),
	}
	for _, err := range steps {
		if err != nil {
			return fmt.Errorf("the machine's files cannot be written: %w", err)
		}
	}
	return nil
}

// runState is what a start leaves for a later core to judge by.
type runState struct {
	Boot  string    `json:"boot"`  // the host's boot
	Phase string    `json:"phase"` // "starting", "ready" or "stopping"
	QEMU  int       `json:"qemu"`  // its pid, once ready
	Since time.Time `json:"since"`
}

func (l layout) writeState(s runState) error {
	s.Boot, s.Since = bootID(), time.Now()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := openFolder(l.run, nil)
	if err != nil {
		return err
	}
	defer f.root.Close()
	if err := f.put(stateFile+".tmp", b, 0o600); err != nil {
		return err
	}
	return f.root.Rename(stateFile+".tmp", stateFile)
}

// readState returns nil when nothing was started since the host's start.
func (l layout) readState() *runState {
	b, err := readSmall(filepath.Join(l.run, stateFile), 4096)
	if err != nil {
		return nil
	}
	var s runState
	if json.Unmarshal(b, &s) != nil || s.Boot != bootID() {
		return nil
	}
	return &s
}
