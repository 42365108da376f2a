package lima

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

func open(t *testing.T, x vm.Machine) guest.Guest {
	t.Helper()
	c, err := x.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := client.Open(t.Context(), c, nil, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// run executes a shell script in the guest and returns what it printed.
func run(t *testing.T, g guest.Guest, root bool, script string) (string, guest.Exit) {
	t.Helper()
	p, err := g.Execs().Start(t.Context(), guest.ExecSpec{ID: fmt.Sprintf("t%d", time.Now().UnixNano()), Argv: []string{"/bin/bash", "-c", script}, Dir: "/", Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var out strings.Builder
	for {
		o, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out.String(), p.Exit()
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Write(o.Data)
	}
}

func stopNow(t *testing.T, x vm.Machine) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestRealGuest measures a machine's life as the core sees it: created, started,
// spoken to, shut down, started again.
func TestRealGuest(t *testing.T) {
	m := realManager(t, filepath.Join(shortTemp(t), "m"))
	img, err := m.opt.Image(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Probe(t.Context(), img); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	x, err := m.Create(t.Context(), vm.Spec{ID: "guest1", Hostname: "glass"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNow(t, x) })
	if err := x.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	up := time.Since(begin)
	g := open(t, x)
	out, exit := run(t, g, false, "echo $(hostname) $(id -un)")
	t.Logf("cold create: answering %s, first exec done %s: %q", up.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), out)
	if out != "glass agent\n" || exit.Code != 0 {
		t.Fatalf("%q %+v", out, exit)
	}
	h := g.Hello()
	if h.Kind != "vm" || h.Hostname != "glass" || h.BootID == "" {
		t.Fatalf("%+v", h)
	}
	var took []time.Duration
	for range 40 {
		b := time.Now()
		if _, exit := run(t, g, false, "exit 7"); exit.Code != 7 {
			t.Fatalf("%+v", exit)
		}
		took = append(took, time.Since(b))
	}
	slices.Sort(took)
	t.Logf("exec of bash p50 %s, p95 %s", took[20].Round(time.Millisecond), took[38].Round(time.Millisecond))
	b := time.Now()
	out, _ = run(t, g, false, "head -c 33554432 /dev/zero | sha256sum; df -h / | tail -1; nproc; ip -o addr show eth0 | head -1; ip link show eth0 | grep -o 'mtu [0-9]*'")
	t.Logf("%s (%s)", strings.ReplaceAll(out, "\n", " | "), time.Since(b).Round(time.Millisecond))
	if !strings.Contains(out, "mtu 65000") {
		t.Error("the link's MTU is not 65000")
	}

	if out, exit := run(t, g, false, "cd /workspace && echo kept > kept.txt && mkdir -p d && for i in $(seq 100); do echo $i > d/$i; done; sync"); exit.Code != 0 {
		t.Fatalf("%q %+v", out, exit)
	}
	b = time.Now()
	if err := g.Shutdown(t.Context()); err != nil && !errors.Is(err, guest.ErrGone) {
		t.Fatal(err)
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("shut down and stopped in %s", time.Since(b).Round(time.Millisecond))
	noProcess(t, x)
	if fi, err := os.Stat(x.(*Machine).l.disk()); err == nil {
		t.Logf("disk of the machine: %d KiB", fi.Size()>>10)
	}
	b = time.Now()
	if err := x.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	g = open(t, x)
	t.Logf("warm start %s", time.Since(b).Round(time.Millisecond))
	if g.Hello().BootID == h.BootID {
		t.Error("the boot id is the same")
	}
	if out, _ := run(t, g, false, "cat /workspace/kept.txt; cat /workspace/d/* | sha256sum | cut -c1-8; dmesg 2>/dev/null | grep -ci 'recovering journal'"); !strings.HasPrefix(out, "kept\n") {
		t.Errorf("the disk lost something: %q", out)
	}
}

// TestRealGuestReachesNothing tries every way out as the guest's root.
func TestRealGuestReachesNothing(t *testing.T) {
	m := realManager(t, filepath.Join(shortTemp(t), "m"))
	x, err := m.Create(t.Context(), vm.Spec{ID: "walls"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNow(t, x) })
	if err := x.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// Listeners of the host on every address, which must hear nothing.
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	heard := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			heard <- "tcp from " + c.RemoteAddr().String()
			c.Close()
		}
	}()
	go func() {
		n, a, err := u.ReadFrom(make([]byte, 100))
		if err == nil && n > 0 {
			heard <- "udp from " + a.String()
		}
	}()
	tcp, udp := l.Addr().(*net.TCPAddr).Port, u.LocalAddr().(*net.UDPAddr).Port
	hostIP := "192.0.2.1"
	if as, err := net.InterfaceAddrs(); err == nil {
		for _, a := range as {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
				hostIP = n.IP.String()
			}
		}
	}
	g := open(t, x)
	// The image's own settings are undone first, as a hostile root would.
	out, _ := run(t, g, true, `
id -u
nft flush ruleset 2>/dev/null; iptables -F 2>/dev/null
ip -6 addr add 2001:db8::5/64 dev eth0 2>/dev/null; ip -6 route add default via 2001:db8::1 2>/dev/null
ip route replace default via 192.168.104.2 dev eth0 || echo noroute
echo nameserver 192.168.104.2 >/etc/resolv.conf
t() { timeout 60 bash -c "exec 3<>/dev/tcp/$1/$2" 2>/tmp/e && echo "REACHED tcp $1:$2" || { grep -q refused /tmp/e && echo "refused $1:$2" || echo "failed $1:$2"; }; }
for a in 192.168.104.2 192.168.104.1 192.168.104.254 192.168.5.2 192.168.5.3 10.0.2.2 127.0.0.2 169.254.169.254 1.1.1.1 192.0.2.1 `+hostIP+`; do t $a `+fmt.Sprint(tcp)+`; done
for p in 22 53 80 443 3128 1021 1022 8080; do t 192.168.104.2 $p; done
for a in 192.168.104.2 `+hostIP+` 1.1.1.1 255.255.255.255; do for p in 53 67 123 443 `+fmt.Sprint(udp)+`; do echo probe >/dev/udp/$a/$p; done; done 2>/dev/null
python3 - <<'PY'
import socket
q=b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01'
for a in ('192.168.104.2','192.168.104.3','192.168.5.3','1.1.1.1','8.8.8.8'):
    s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(1)
    try: s.sendto(q,(a,53)); s.recv(100); print('REACHED dns',a)
    except OSError: pass
try: socket.getaddrinfo('example.com',80); print('REACHED resolver')
except OSError: pass
def icmp(a):
    s=socket.socket(socket.AF_INET,socket.SOCK_RAW,1); s.settimeout(1)
    try:
        s.sendto(b'\x08\x00\xf7\xff\x00\x00\x00\x00',(a,0))
        while True:
            b,f=s.recvfrom(200)
            if b[20]==0: print('REACHED icmp',a,f); return
    except OSError: pass
for a in ('192.168.104.2','1.1.1.1','192.168.5.2'): icmp(a)
s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3)); s.bind(('eth0',0)); s.settimeout(1)
mac=s.getsockname()[4]; gw=bytes.fromhex('5a94efe40cdd')
ip6=bytes.fromhex('6000000000083a40')+bytes.fromhex('20010db8000000000000000000000005')+bytes.fromhex('20010db8000000000000000000000001')+b'\x80\x00\x00\x00\x00\x00\x00\x00'
for f in (gw+mac+b'\x86\xdd'+ip6, b'\xff'*6+mac+b'\x86\xdd'+ip6, gw+b'\x02\x00\x00\x00\x00\x09'+b'\x08\x00'+b'\x45'+b'\x00'*30, b'\xff'*6+mac+b'\x88\xcc'+b'\x00'*46):
    s.send(f)
import time
end=time.time()+1.5
while time.time()<end:
    try: b=s.recv(2000)
    except OSError: break
    if b[6:12]!=mac and b[12:14]==b'\x86\xdd': print('REACHED ipv6 answer')
PY
echo done
`)
	t.Log(out)
	if !strings.HasPrefix(out, "0\n") || !strings.HasSuffix(out, "done\n") {
		t.Fatalf("the script did not run to its end as root: %q", out)
	}
	if strings.Contains(out, "REACHED") || strings.Contains(out, "noroute") {
		t.Error("something was reached, or nothing was tried")
	}
	for _, a := range []string{"192.168.104.2", "1.1.1.1", hostIP, "169.254.169.254"} {
		if !strings.Contains(out, "refused "+a+":") {
			t.Errorf("TCP to %s is not reset", a)
		}
	}
	select {
	case who := <-heard:
		t.Errorf("the host was reached: %s", who)
	default:
	}
	// The host's own ways: no port of the guest is on the host.
	line, _ := commandLine(x.(*Machine).l.procs().qemu.pid)
	for _, s := range []string{"hostfwd", "user,", "tap", "-vnc"} {
		if strings.Contains(line, s) {
			t.Errorf("QEMU has %q", s)
		}
	}
	// The guest's own user cannot reach guestd's port, and the channel still works.
	// What is sent is a ping of the multiplexer, which any session would answer.
	out, _ = run(t, g, false, `for a in 127.0.0.1 192.168.104.3; do timeout 3 bash -c "exec 3<>/dev/tcp/$a/1021 && printf '\\0\\2\\0\\1\\0\\0\\0\\0\\0\\0\\0\\7' >&3 && head -c 1 <&3 | wc -c" 2>/dev/null; done; echo done`)
	if strings.Trim(out, "0\n") != "done" {
		t.Errorf("guestd's port from inside: %q", out)
	}
}
