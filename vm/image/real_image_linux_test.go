package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// realImage is the finished image that GLASSHOUSE_TEST_IMAGE names, as TestBuildReal leaves one.
func realImage(t *testing.T) *Image {
	t.Helper()
	dir := os.Getenv("GLASSHOUSE_TEST_IMAGE")
	if dir == "" {
		t.Skip("set GLASSHOUSE_TEST_IMAGE to the folder of a finished image to check it")
	}
	img, err := OpenDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestRealTreeIsHarmless(t *testing.T) {
	img := realImage(t)
	files := 0
	err := filepath.WalkDir(img.RootFS, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		m := info.Mode()
		if m&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is %v", name, m)
		}
		if !m.IsDir() && !m.IsRegular() && m&fs.ModeSymlink == 0 {
			t.Errorf("%s is %v", name, m)
		}
		if m&fs.ModeSymlink == 0 && (m&0o444 != 0o444 || m.IsDir() && m&0o111 != 0o111) {
			t.Errorf("%s cannot be read by everyone: %v", name, m)
		}
		if !m.IsDir() && (strings.HasSuffix(name, ".deb") || strings.Contains(name, "/boot/")) {
			t.Errorf("%s should not be in the image", name)
		}
		return nil
	})
	must(t, err)
	if files < 5000 {
		t.Errorf("only %d files", files)
	}
	for _, name := range []string{"etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_rsa_key"} {
		if _, err := os.Stat(filepath.Join(img.RootFS, name)); err == nil {
			t.Errorf("%s would be the same in every machine", name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(img.RootFS, "etc/machine-id")); err != nil || len(b) != 0 {
		t.Errorf("machine-id: %q, %v", b, err)
	}
}

func TestRealManifest(t *testing.T) {
	m := realImage(t).Manifest
	r, err := Default()
	must(t, err)
	packages, err := r.lines("packages.txt")
	must(t, err)
	have := map[string]bool{}
	for _, p := range m.Packages {
		have[p.Name] = p.Version != ""
	}
	for _, p := range packages {
		if !have[p] {
			t.Errorf("the manifest has no %s", p)
		}
	}
	if !strings.HasPrefix(m.KernelPackage.Name, "linux-image-"+m.KernelRelease) || m.KernelPackage.Version == "" {
		t.Errorf("kernel %s from %+v", m.KernelRelease, m.KernelPackage)
	}
}

// inTree runs a shell line in the tree as the local machine would: an ordinary user, no network, read-only system.
func inTree(t *testing.T, img *Image, line string) (string, error) {
	t.Helper()
	bwrap, err := findTool("bwrap")
	if err != nil {
		t.Skip("this host has no bwrap (bubblewrap)")
	}
	work := t.TempDir()
	must(t, os.Chmod(work, 0o777))
	args := []string{bwrap, "--unshare-all", "--uid", "1000", "--gid", "1000", "--die-with-parent", "--clearenv",
		"--setenv", "PATH", "/usr/local/bin:/usr/bin", "--setenv", "HOME", "/home/agent", "--setenv", "LANG", "C.UTF-8",
		"--ro-bind", img.RootFS + "/usr", "/usr", "--ro-bind", img.RootFS + "/etc", "/etc", "--ro-bind", img.RootFS + "/var", "/var",
		"--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin",
		"--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--tmpfs", "/home/agent",
		"--ro-bind", img.RootFS + "/home/agent", "/skel", "--tmpfs", "/workspace", "--chdir", "/workspace",
		"bash", "-c", line}
	name := args[0]
	if os.Geteuid() == 0 {
		if name, err = findTool("setpriv"); err != nil {
			t.Skip("root needs setpriv to become an ordinary user for this test")
		}
		args = append([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"}, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	err = hostRun(ctx, name, args[1:], RunOptions{Dir: "/", Stdout: &out, Stderr: &errs})
	if err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

func TestRealProgramsRun(t *testing.T) {
	img := realImage(t)
	for line, want := range map[string]string{
		"git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l": "1",
		"python3 -c 'import ssl, sqlite3, venv; print(6*7)'":                                                              "42",
		"python3 -m venv v && v/bin/pip --version":                                                                        "pip ",
		"node --version": "v22.",
		"node -e 'fetch; console.log(new Intl.DateTimeFormat(\"de\").resolvedOptions().locale)'": "de",
		"npm --version":                   "11.",
		"npx --version":                   "11.",
		"echo needle >f && rg -l needle":  "f",
		"echo '{\"a\":[1,2]}' | jq -c .a": "[1,2]",
		"printf 'int main(){return 0;}' >m.c && make -s m && ./m && echo built":                                                    "built",
		"printf '#include <vector>\\nint main(){return std::vector<int>(3).size()-3;}' >p.cc && g++ p.cc && ./a.out && echo built": "built",
		"curl --version":  "https",
		"bwrap --version": "bubblewrap",
		"ssh -V 2>&1":     "OpenSSH",
		"certutil -N -d sql:. --empty-password && echo made": "made",
		"fc-list :lang=zh-cn family":                         "WenQuanYi",
		"fc-list :lang=ja family":                            "WenQuanYi",
		"fc-list : family":                                   "Noto Color Emoji",
		"fc-match monospace":                                 "DejaVu Sans Mono",
		"fc-match Arial":                                     "Liberation Sans",
	} {
		out, err := inTree(t, img, line)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwants %q", line, err, out, want)
		}
	}
}

// TestRealNativeModule builds a native Node module without any network.
func TestRealNativeModule(t *testing.T) {
	out, err := inTree(t, realImage(t), `
		mkdir -p ~/.cache && cp -a /skel/.cache/node-gyp ~/.cache/ &&
		echo '{"name":"x","version":"1.0.0"}' >package.json &&
		echo '{"targets":[{"target_name":"x","sources":["x.c"]}]}' >binding.gyp &&
		printf '#include <node_api.h>\nstatic napi_value I(napi_env e, napi_value x) { return x; }\nNAPI_MODULE(x, I)\n' >x.c &&
		npm install >log 2>&1 || { cat log; exit 1; }
		node -e 'require("/workspace/build/Release/x.node"); console.log("loaded")'`)
	if err != nil || !strings.Contains(out, "loaded") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRealBrowser starts the headless shell with its own sandbox and looks at what it paints.
func TestRealBrowser(t *testing.T) {
	img := realImage(t)
	out, err := inTree(t, img, `
		printf '<meta charset=utf-8><body style="margin:0"><h1>中文 日本語 한국어 😀</h1><script>document.title=navigator.language+document.fonts.size</script>' >/tmp/p.html
		shell=/usr/lib/chromium/chromium-headless-shell
		$shell --dump-dom file:///tmp/p.html 2>/tmp/log || { cat /tmp/log; exit 1; }
		$shell --screenshot=/tmp/p.png --window-size=400,100 file:///tmp/p.html 2>/tmp/log || { cat /tmp/log; exit 1; }
		echo PNG; base64 -w0 /tmp/p.png`)
	if err != nil || !strings.Contains(out, "<h1>中文 日本語 한국어 😀</h1>") {
		t.Fatalf("%v\n%s", err, out)
	}
	_, b64, _ := strings.Cut(out, "PNG\n")
	picture, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(strings.TrimSpace(b64))))
	must(t, err)
	// The emoji is the only thing in colour: without its font, or with a box in its place, all is grey.
	coloured := 0
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			if max(r, g, b)-min(r, g, b) > 0x4000 {
				coloured++
			}
		}
	}
	if coloured < 100 {
		t.Errorf("%d coloured pixels: the emoji was not painted", coloured)
	}
}

// TestRealBoots boots the image under emulation: first as a probe without any disk, then up to /sbin/init.
func TestRealBoots(t *testing.T) {
	img := realImage(t)
	qemu, err := findTool("qemu-system-x86_64")
	if err != nil {
		t.Skip("this host has no qemu-system-x86_64")
	}
	qemuImg, err := findTool("qemu-img")
	must(t, err)
	overlay := filepath.Join(t.TempDir(), "overlay.qcow2")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	must(t, hostRun(ctx, qemuImg, []string{"create", "-q", "-f", "qcow2", "-b", img.QCOW2, "-F", "qcow2", overlay}, RunOptions{}))
	// console boots with input typed once the disk is mounted, until a line of the serial console has what is wanted.
	initrd := img.InitrdBase
	console := func(want, input, cmdline string, more ...string) {
		t.Helper()
		ctx, found := context.WithCancel(ctx)
		defer found()
		keys, typing := io.Pipe()
		defer typing.Close()
		var seen bytes.Buffer
		out := &tail{line: func(line string) {
			seen.WriteString(line + "\n")
			if strings.Contains(line, "(vda): mounted") {
				go func() {
					io.WriteString(typing, input)
					typing.Close()
				}()
			}
			if strings.Contains(line, want) {
				typing.Close()
				found()
			}
		}}
		args := append([]string{"-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35,vmport=off", "-cpu", "max,la57=off",
			"-smp", "2", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
			"-kernel", img.Kernel, "-initrd", initrd, "-append", cmdline}, more...)
		start := time.Now()
		hostRun(ctx, qemu, args, RunOptions{Stdin: keys, Stdout: out, Stderr: out})
		if !strings.Contains(seen.String(), want) {
			t.Fatalf("no %q on the console:\n%s", want, seen.String())
		}
		t.Logf("%q after %.1f s", want, time.Since(start).Seconds())
	}
	console(ProbeLine, "", KernelArgs+" "+KernelArgsEmulated+" "+ProbeArg)
	// An initrd with another guestd than the disk's puts it there.
	guestd := filepath.Join(t.TempDir(), "guestd")
	must(t, os.WriteFile(guestd, []byte("#!/bin/sh\necho NEW-$((40+2))\n"), 0o755))
	sum, err := fileSHA256(guestd)
	must(t, err)
	initrd = filepath.Join(t.TempDir(), "initrd.img")
	must(t, writeComposed(initrd, img.InitrdBase, guestd, sum))
	// A shell in the place of init shows that disk, link and hand-over work, whatever guestd the disk was seeded with.
	console("HANDED 2 1500 192.168.104.3/24 192.168.104.2 1000:1000 NEW-42 "+sum,
		"echo HANDED $((1+1)) $(cat /sys/class/net/eth0/mtu) $(ip -4 -o addr show eth0 | awk '{print $4}') "+
			"$(ip route | awk '/^default/{print $3}') $(stat -c %u:%g /workspace) "+
			"$(/sbin/init) $(cat "+GuestdPath+".sha256)\n",
		strings.ReplaceAll(KernelArgs, "quiet loglevel=3", "loglevel=7")+" "+KernelArgsEmulated+
			" gh.ip=192.168.104.3/24 gh.gw=192.168.104.2 gh.mtu=1500 gh.init=/bin/sh",
		"-drive", "if=virtio,format=qcow2,file="+strings.ReplaceAll(overlay, ",", ",,"), "-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,romfile=")
}

// TestRealInstall installs the image beside itself, where hard links can be made.
func TestRealInstall(t *testing.T) {
	img := realImage(t)
	dest, err := os.MkdirTemp(filepath.Dir(img.Dir), ".install-test-")
	must(t, err)
	defer os.RemoveAll(dest)
	start := time.Now()
	got, err := Install(context.Background(), img, dest)
	must(t, err)
	t.Logf("installed in %.1f s", time.Since(start).Seconds())
	if got.Dir != filepath.Join(dest, img.Hash) || got.Manifest.QCOW2Bytes != img.Manifest.QCOW2Bytes {
		t.Errorf("installed as %+v", got)
	}
}
