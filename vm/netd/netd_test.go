package netd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestChannelCarriesBytesBothWays(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	listen(t, g, echo)
	c, r, err := w.open()
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log)
	}
	// 64 MiB there and back: more than every buffer on the way together.
	const total = 64 << 20
	block := make([]byte, 1<<20)
	if _, err := rand.Read(block); err != nil {
		t.Fatal(err)
	}
	want := sha256.New()
	begin := time.Now()
	go func() {
		for range total / len(block) {
			want.Write(block)
			if _, err := c.Write(block); err != nil {
				return
			}
		}
		_ = c.CloseWrite() // half-close must reach the guest, or the echo never ends
	}()
	got := sha256.New()
	n, err := io.Copy(got, r)
	if err != nil || n != total {
		t.Fatalf("came back: %d bytes, %v", n, err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatal("the bytes changed on the way")
	}
	t.Logf("%.0f MiB/s there and back", float64(total)/(1<<20)/time.Since(begin).Seconds())
}

func TestHalfCloseFromGuest(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	heard := make(chan string, 1)
	listen(t, g, func(c net.Conn) {
		defer c.Close()
		_, _ = c.Write([]byte("bye"))
		_ = c.(duplex).CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	c, r, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); string(b) != "bye" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	// The guest's half is closed; ours still carries.
	if _, err := c.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	select {
	case s := <-heard:
		if s != "still here" {
			t.Fatalf("the guest heard %q", s)
		}
	case <-time.After(hang):
		t.Fatal("the host's half did not carry after the guest's closed")
	}
}

func TestSlowReaderStopsTheWriter(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	sent := make(chan int64, 1)
	listen(t, g, func(c net.Conn) {
		defer c.Close()
		var n int64
		b := make([]byte, 256<<10)
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		for {
			m, err := c.Write(b)
			n += int64(m)
			if err != nil {
				sent <- n
				return
			}
		}
	})
	if _, _, err := w.open(); err != nil { // and never read
		t.Fatal(err)
	}
	select {
	case n := <-sent:
		if n > 64<<20 {
			t.Fatalf("the guest could push %d MiB at a reader that does not read", n>>20)
		}
	case <-time.After(hang):
		t.Fatal("the guest's writer neither went on nor stopped")
	}
}

func TestGuestReachesNothing(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	listen(t, g, echo)
	// A listener of the host, on all its addresses, that must hear nothing.
	host, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	heard := make(chan struct{}, 1)
	go func() {
		if c, err := host.Accept(); err == nil {
			c.Close()
			heard <- struct{}{}
		}
	}()
	port := uint16(host.Addr().(*net.TCPAddr).Port)
	for _, to := range []string{GatewayAddr, "192.168.104.1", "192.168.104.9", "127.0.0.1", "10.0.0.1", "192.0.2.1", "198.51.100.7", "203.0.113.9", "1.1.1.1", "169.254.169.254", "192.168.5.2"} {
		for _, p := range []uint16{port, 22, 53, 80, 443, 3128, DefaultPort} {
			on := strings.HasPrefix(to, "192.168.104.") && to != GatewayAddr
			if to == "127.0.0.1" || on && p != 80 {
				continue // the guest's own stack; and no one answers ARP for a neighbour, which takes long
			}
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			c, err := g.DialTCP(ctx, to, p, 0)
			cancel()
			if err == nil {
				c.Close()
				t.Fatalf("the guest reached %s:%d", to, p)
			}
			if on {
				continue
			}
			if !strings.Contains(err.Error(), "refused") {
				t.Errorf("TCP to %s:%d is not reset: %v", to, p, err)
			}
		}
	}
	// From a chosen port too.
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	c, err := g.DialTCP(ctx, GatewayAddr, port, DefaultPort+1)
	if err == nil {
		c.Close()
		t.Fatal("reached the gateway")
	}
	// UDP: sent, never answered.
	for _, p := range []uint16{53, 67, 123, 443, 5353} {
		u, err := g.DialUDP(GatewayAddr, p)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = u.Write([]byte("hello?"))
		_ = u.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := u.Read(make([]byte, 100)); err == nil {
			t.Fatalf("UDP port %d answered %d bytes", p, n)
		}
		u.Close()
	}
	eventually(t, "the counters", func() bool {
		s := w.status().Frames
		return s["tcp_reset"] >= 7*7 && s["udp"] >= 5 && s["arp_answered"] >= 1 && s["arp"] >= 1
	})
	if s := w.status(); s.Frames["passed"] != 0 {
		t.Fatalf("frames passed although the host dialled nothing: %v", s.Frames)
	}
	select {
	case <-heard:
		t.Fatal("the host's listener was reached")
	default:
	}
	// And through all of it the channel works.
	if _, _, err := w.open(); err != nil {
		t.Fatalf("the channel after the attempts: %v", err)
	}
}

// ether builds a frame from the guest's card.
func ether(typ uint16, payload ...byte) []byte {
	src, _ := net.ParseMAC(guestMAC)
	dst, _ := net.ParseMAC(GatewayMAC)
	f := append(append([]byte{}, dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, typ), payload...)
}

func ip4(proto byte, src, dst string, frag uint16, payload ...byte) []byte {
	h := make([]byte, 20)
	h[0] = 0x45
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(h[6:], frag)
	h[8], h[9] = 64, proto
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(h[12:], s[:])
	copy(h[16:], d[:])
	return ether(etherIPv4, append(h, payload...)...)
}

func seg(sport, dport uint16, flags byte) []byte {
	t := make([]byte, 20)
	binary.BigEndian.PutUint16(t[0:], sport)
	binary.BigEndian.PutUint16(t[2:], dport)
	binary.BigEndian.PutUint32(t[4:], 1000)
	binary.BigEndian.PutUint32(t[8:], 77)
	t[12], t[13] = 0x50, flags
	return t
}

func arpReq(sender, target string, op byte) []byte {
	m, _ := net.ParseMAC(guestMAC)
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, m...)
	s, d := netip.MustParseAddr(sender).As4(), netip.MustParseAddr(target).As4()
	p = append(append(p, s[:]...), 0, 0, 0, 0, 0, 0)
	return ether(etherARP, append(p, d[:]...)...)
}

func TestFilterTable(t *testing.T) {
	gwMAC, _ := net.ParseMAC(GatewayMAC)
	mac, _ := net.ParseMAC(guestMAC)
	f := filter{guest: netip.MustParseAddr(GuestAddr), gateway: netip.MustParseAddr(GatewayAddr), gatewayMAC: gwMAC, port: DefaultPort}
	other := ether(etherIPv4)
	copy(other[6:12], []byte{2, 0, 0, 0, 0, 9})
	lying := arpReq(GuestAddr, GatewayAddr, 1)
	copy(lying[22:28], []byte{2, 0, 0, 0, 0, 9})
	long := ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 9, flagACK)...)
	binary.BigEndian.PutUint16(long[16:], 4000) // says more than there is
	badOff := seg(DefaultPort, 9, flagACK)
	badOff[12] = 0xf0
	wrongMAC := ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 9, flagACK)...)
	copy(wrongMAC[0:6], []byte{2, 0, 0, 0, 0, 9})
	opts := ip4(protoTCP, GuestAddr, GatewayAddr, 0, append([]byte{1, 1, 1, 1}, seg(DefaultPort, 9, flagACK)...)...)
	opts[14] = 0x46
	for _, tt := range []struct {
		name  string
		frame []byte
		want  kind
		reply bool
	}{
		{"empty", nil, kShort, false},
		{"13 bytes", make([]byte, 13), kShort, false},
		{"only a header", ether(etherIPv4), kShort, false},
		{"another source address", other, kSourceMAC, false},
		{"IPv6", ether(etherIPv6, make([]byte, 60)...), kIPv6, false},
		{"VLAN", ether(0x8100, make([]byte, 60)...), kEther, false},
		{"LLDP", ether(0x88cc, make([]byte, 60)...), kEther, false},
		{"ARP for the gateway", arpReq(GuestAddr, GatewayAddr, 1), kARPReply, true},
		{"ARP probe for the gateway", arpReq("0.0.0.0", GatewayAddr, 1), kARPReply, true},
		{"ARP for another", arpReq(GuestAddr, "192.168.104.1", 1), kARP, false},
		{"ARP for itself", arpReq(GuestAddr, GuestAddr, 1), kARP, false},
		{"ARP answer", arpReq(GuestAddr, GatewayAddr, 2), kARP, false},
		{"ARP from another address", arpReq("192.168.104.7", GatewayAddr, 1), kARP, false},
		{"ARP with another sender inside", lying, kARP, false},
		{"ARP cut", arpReq(GuestAddr, GatewayAddr, 1)[:30], kShort, false},
		{"DNS", ip4(protoUDP, GuestAddr, GatewayAddr, 0, make([]byte, 40)...), kUDP, false},
		{"DHCP", ip4(protoUDP, "0.0.0.0", "255.255.255.255", 0, make([]byte, 240)...), kUDP, false},
		{"ping", ip4(protoICMP, GuestAddr, GatewayAddr, 0, make([]byte, 40)...), kICMP, false},
		{"SCTP", ip4(132, GuestAddr, GatewayAddr, 0, make([]byte, 40)...), kIP, false},
		{"IP in IP", ip4(4, GuestAddr, GatewayAddr, 0, make([]byte, 40)...), kIP, false},
		{"6in4", ip4(41, GuestAddr, "192.0.2.1", 0, make([]byte, 40)...), kIP, false},
		{"IGMP", ip4(2, GuestAddr, "224.0.0.1", 0, make([]byte, 8)...), kIP, false},
		{"SYN out", ip4(protoTCP, GuestAddr, "192.0.2.1", 0, seg(4000, 80, flagSYN)...), kReset, true},
		{"SYN to the gateway", ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(4000, 22, flagSYN)...), kReset, true},
		{"SYN from guestd's port", ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 22, flagSYN)...), kReset, true},
		{"SYN with data flags from guestd's port", ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 22, flagSYN|8)...), kReset, true},
		{"ACK out", ip4(protoTCP, GuestAddr, "192.0.2.1", 0, seg(DefaultPort, 80, flagACK)...), kReset, true},
		{"RST out", ip4(protoTCP, GuestAddr, "192.0.2.1", 0, seg(4000, 80, flagRST)...), kReset, false},
		{"TCP to a group", ip4(protoTCP, GuestAddr, "224.0.0.1", 0, seg(4000, 80, flagSYN)...), kReset, false},
		{"TCP to all", ip4(protoTCP, GuestAddr, "255.255.255.255", 0, seg(4000, 80, flagSYN)...), kReset, false},
		{"another source", ip4(protoTCP, "192.168.104.9", GatewayAddr, 0, seg(DefaultPort, 80, flagACK)...), kSpoof, false},
		{"loopback source", ip4(protoTCP, "127.0.0.1", GatewayAddr, 0, seg(DefaultPort, 80, flagACK)...), kSpoof, false},
		{"first fragment", ip4(protoTCP, GuestAddr, GatewayAddr, 0x2000, seg(DefaultPort, 80, flagACK)...), kFragment, false},
		{"later fragment", ip4(protoTCP, GuestAddr, GatewayAddr, 3, seg(DefaultPort, 80, flagACK)...), kFragment, false},
		{"lying length", long, kShort, false},
		{"lying TCP offset", ip4(protoTCP, GuestAddr, GatewayAddr, 0, badOff...), kShort, false},
		{"TCP cut", ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(1, 2, flagSYN)[:12]...), kShort, false},
		{"IP options", opts, kReset, true},
		{"to another hardware address", wrongMAC, kReset, true},
		{"channel, SYN-ACK", ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 40000, flagSYN|flagACK)...), kPass, false},
		{"channel, data", ip4(protoTCP, GuestAddr, GatewayAddr, 0x4000, append(seg(DefaultPort, 40000, flagACK), 1, 2, 3)...), kPass, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, reply := f.decide(tt.frame, mac)
			if k != tt.want || (reply != nil) != tt.reply {
				t.Fatalf("%s, reply %v; want %s, reply %v", kindNames[k], reply != nil, kindNames[tt.want], tt.reply)
			}
			if reply != nil && (!bytes.Equal(reply[0:6], mac) || len(reply) > 60) {
				t.Fatalf("a reply goes to %x with %d bytes", reply[0:6], len(reply))
			}
		})
	}
}

func TestResetAnswersTheSegment(t *testing.T) {
	gwMAC, _ := net.ParseMAC(GatewayMAC)
	f := filter{guest: netip.MustParseAddr(GuestAddr), gateway: netip.MustParseAddr(GatewayAddr), gatewayMAC: gwMAC, port: DefaultPort}
	for _, tt := range []struct {
		flags    byte
		data     int
		seq, ack uint32
		out      byte
	}{
		{flagSYN, 0, 0, 1001, flagRST | flagACK},
		{flagSYN | flagFIN, 10, 0, 1012, flagRST | flagACK},
		{0, 5, 0, 1005, flagRST | flagACK},
		{flagACK, 5, 77, 0, flagRST},
	} {
		_, r := f.decide(ip4(protoTCP, GuestAddr, "192.0.2.1", 0, append(seg(4000, 80, tt.flags), make([]byte, tt.data)...)...), nil)
		ip, tc := r[14:34], r[34:]
		if checksum(ip, 0) != 0 {
			t.Error("the IP checksum is wrong")
		}
		var pseudo uint32 = protoTCP + 20
		for i := 12; i < 20; i += 2 {
			pseudo += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		if checksum(tc, pseudo) != 0 {
			t.Error("the TCP checksum is wrong")
		}
		if s, a := binary.BigEndian.Uint32(tc[4:]), binary.BigEndian.Uint32(tc[8:]); s != tt.seq || a != tt.ack || tc[13] != tt.out {
			t.Errorf("flags %d: seq %d ack %d flags %d, want %d %d %d", tt.flags, s, a, tc[13], tt.seq, tt.ack, tt.out)
		}
		if binary.BigEndian.Uint16(tc[0:]) != 80 || binary.BigEndian.Uint16(tc[2:]) != 4000 || netip.AddrFrom4([4]byte(ip[12:16])).String() != "192.0.2.1" {
			t.Error("the reset does not come from where the segment went")
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(arpReq(GuestAddr, GatewayAddr, 1))
	f.Add(ip4(protoTCP, GuestAddr, GatewayAddr, 0, seg(DefaultPort, 40000, flagACK)...))
	f.Add(ip4(protoTCP, GuestAddr, "192.0.2.1", 0, seg(4000, 80, flagSYN)...))
	f.Add([]byte{})
	gwMAC, _ := net.ParseMAC(GatewayMAC)
	fl := filter{guest: netip.MustParseAddr(GuestAddr), gateway: netip.MustParseAddr(GatewayAddr), gatewayMAC: gwMAC, port: DefaultPort}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, reply := fl.decide(b, nil)
		if k == kPass && (reply != nil || netip.AddrFrom4([4]byte(b[30:34])) != fl.gateway || b[23] != protoTCP) {
			t.Fatal("a frame passed that is not of the channel")
		}
		if len(reply) > len(b)+28 && len(reply) > 54 {
			t.Fatal("a reply is larger than an answer can be")
		}
	})
}

func TestHostileWireDoesNotStopNetd(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	listen(t, g, echo)
	// Odd frames between the good ones; each is written whole, so the stream stays in step.
	for i := range 2000 {
		b := make([]byte, (i*37)%1500)
		_, _ = rand.Read(b)
		if i%50 == 0 {
			b = make([]byte, maxFrame+1+i)
		}
		if i%7 == 0 && len(b) > 14 {
			copy(b, ether(etherIPv4))
		}
		if err := g.WriteFrame(b); err != nil {
			t.Fatal(err)
		}
	}
	c, r, err := w.open()
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log)
	}
	_, _ = c.Write([]byte("x"))
	if b, err := r.ReadByte(); b != 'x' || err != nil {
		t.Fatal(b, err)
	}
	if s := w.status().Frames; s["oversize"] != 40 {
		t.Fatalf("oversize frames counted: %v", s)
	}
}

// writeLocked writes a frame in one call: the guest's stack writes too.
func writeLocked(w *streamWire, b []byte) error {
	_, err := w.Conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func TestBrokenFramingEndsTheConnection(t *testing.T) {
	w := start(t, nil)
	q := w.wireTo()
	if _, err := q.Conn.Write([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
}

func TestOneMachineOnly(t *testing.T) {
	w := start(t, nil)
	w.guest()
	eventually(t, "the connection", func() bool { return w.status().Connected })
	second := w.wireTo()
	_ = second.Conn.SetReadDeadline(time.Now().Add(hang))
	if _, err := second.Conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("a second machine was taken: %v", err)
	}
	if n := w.status().Frames["extra_connection"]; n != 1 {
		t.Fatal(n)
	}
}

func TestPassedDescriptor(t *testing.T) {
	// As Lima's vz driver connects: a datagram socket over the fd socket.
	w := start(t, nil)
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	c, err := net.Dial("unix", w.cfg.Sock("fd"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("x"), syscall.UnixRights(fds[1]), nil); err != nil {
		t.Fatal(err)
	}
	c.Close()
	syscall.Close(fds[1])
	if _, err := syscall.Write(fds[0], arpReq(GuestAddr, GatewayAddr, 1)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	_ = syscall.SetsockoptTimeval(fds[0], syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 30})
	n, err := syscall.Read(fds[0], b)
	for err == syscall.EINTR { // a signal of the run-time's own: with a time limit a read is not taken up again
		n, err = syscall.Read(fds[0], b)
	}
	if err != nil || n != 42 {
		t.Fatalf("no answer to ARP: %d %v", n, err)
	}
}

func TestDialsBeforeTheGuestIsReady(t *testing.T) {
	w := start(t, nil)
	type res struct {
		err error
	}
	got := make(chan res, 1)
	go func() {
		_, _, err := w.open()
		got <- res{err}
	}()
	time.Sleep(100 * time.Millisecond) // no card yet
	g := w.guest()
	time.Sleep(200 * time.Millisecond) // a card, no guestd: refused
	listen(t, g, echo)
	select {
	case r := <-got:
		if r.err != nil {
			t.Fatal(r.err)
		}
	case <-time.After(hang):
		t.Fatal("the channel did not open")
	}
}

func TestClientThatLeavesIsForgotten(t *testing.T) {
	w := start(t, nil)
	w.guest()
	for range 2 * maxRelays {
		c, err := net.Dial("unix", w.cfg.Chan)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	eventually(t, "free slots", func() bool {
		c, err := net.Dial("unix", w.cfg.Chan)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = c.Read(make([]byte, 1))
		return isTimeout(err) // still waiting for guestd, so it has a slot
	})
}

func TestEndsWithTheMachine(t *testing.T) {
	w := start(t, nil)
	g := w.guest()
	listen(t, g, echo)
	_, r, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Fatal("the channel outlived the machine")
	}
	for _, p := range []string{w.cfg.PidFile(), w.cfg.Chan, w.cfg.Sock("qemu")} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s is left behind", filepath.Base(p))
		}
	}
}

func TestEndsWithoutAMachine(t *testing.T) {
	w := start(t, func(c *Config) { c.NoVM = 50 * time.Millisecond })
	if err := w.wait(); err == nil || !strings.Contains(err.Error(), "no machine connected") {
		t.Fatal(err)
	}
}

func TestEndsWhenThePidFileIsTaken(t *testing.T) {
	w := start(t, nil)
	w.guest()
	if err := os.Remove(w.cfg.PidFile()); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(); err == nil || !strings.Contains(err.Error(), "pid file") {
		t.Fatal(err)
	}
}

func TestSecondNetdIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "pid")
	// A live process that is no netd does not hold the file: numbers are used again.
	if err := os.WriteFile(p, []byte(strconv.Itoa(os.Getppid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claim(p); err != nil {
		t.Fatal(err)
	}
	if readPid(p) != os.Getpid() {
		t.Fatal("the pid file is not ours")
	}
	for _, bad := range []string{"", "x", "-4", "0", strings.Repeat("9", 40)} {
		_ = os.WriteFile(p, []byte(bad), 0o600)
		if n := readPid(p); n != 0 {
			t.Errorf("%q read as %d", bad, n)
		}
	}
}

func TestServicesAnswerLima(t *testing.T) {
	w := start(t, nil)
	var leases map[string]string
	w.get("/services/dhcp/leases", &leases)
	if leases[GuestAddr] != guestMAC {
		t.Fatalf("leases: %v", leases)
	}
	for i, p := range []string{"/services/forwarder/expose", "/services/forwarder/unexpose", "/services/dns/add"} {
		// Where nobody else listens: an address of this process below the ports that are given out.
		addr := fmt.Sprintf("127.%d.%d.2:%d", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff, 20000+i)
		r, err := w.http().Post("http://lima"+p, "application/json", strings.NewReader(fmt.Sprintf(`{"local":%q,"remote":"192.168.104.3:22","protocol":"tcp"}`, addr)))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", p, r.Status)
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Errorf("%s opened a port on the host", p)
		}
	}
	if r, err := w.http().Get("http://lima/tunnel?ip=192.168.104.3&port=22"); err != nil || r.StatusCode != 404 {
		t.Fatal(r.Status, err)
	}
}

func TestSocketsAreForTheOwnerAlone(t *testing.T) {
	w := start(t, nil)
	for _, p := range []string{w.cfg.Chan, w.cfg.Sock("qemu"), w.cfg.Sock("fd"), w.cfg.Sock("ep"), w.cfg.PidFile()} {
		fi, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", filepath.Base(p), fi.Mode())
		}
	}
}

func TestFloodDoesNotFloodTheLog(t *testing.T) {
	w := start(t, nil)
	q := w.wireTo()
	f := ip4(protoUDP, GuestAddr, GatewayAddr, 0, make([]byte, 40)...)
	for range 20000 {
		if err := writeLocked(q, f); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the count", func() bool { return w.status().Frames["udp"] == 20000 })
	eventually(t, "the flood in the log", func() bool { return strings.Contains(w.log.String(), "udp=") })
	time.Sleep(10 * w.cfg.Check)
	if n := strings.Count(w.log.String(), "\n"); n > 10 {
		t.Fatalf("%d lines for a flood:\n%s", n, w.log)
	}
}

func TestConsoleLogIsCapped(t *testing.T) {
	p := filepath.Join(t.TempDir(), "serial.log")
	if err := os.WriteFile(p, append(bytes.Repeat([]byte("a"), 1<<20), "the end"...), 0o600); err != nil {
		t.Fatal(err)
	}
	capLog(p, 2<<20)
	if fi, _ := os.Stat(p); fi.Size() != 1<<20+7 {
		t.Fatal("cut too early")
	}
	capLog(p, 1<<20)
	fi, _ := os.Stat(p)
	tail, err := os.ReadFile(p + ".1")
	if fi.Size() != 0 || err != nil || !bytes.HasSuffix(tail, []byte("the end")) || len(tail) != 64<<10 {
		t.Fatalf("size %d, tail %d bytes, %v", fi.Size(), len(tail), err)
	}
	// A link is not followed.
	victim := filepath.Join(t.TempDir(), "v")
	_ = os.WriteFile(victim, make([]byte, 100), 0o600)
	_ = os.Remove(p)
	_ = os.Symlink(victim, p)
	capLog(p, 10)
	if fi, _ := os.Stat(victim); fi.Size() != 100 {
		t.Fatal("cut a file through a link")
	}
}

func TestBadConfig(t *testing.T) {
	long := strings.Repeat("x", 120)
	for _, c := range []Config{
		{},
		{Dir: t.TempDir(), Name: "gh"},
		{Dir: t.TempDir(), Name: "gh", Chan: "/tmp/" + long},
		{Dir: t.TempDir(), Name: "gh", Chan: "c", MTU: 70000},
		{Dir: t.TempDir(), Name: "gh", Chan: "c", Guest: netip.MustParseAddr("::1")},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := Run(ctx, c); err == nil {
			t.Errorf("%+v was taken", c)
		}
		cancel()
	}
	if err := Main(context.Background(), []string{"-nonsense"}); err == nil {
		t.Error("an unknown flag was taken")
	}
	if err := Main(context.Background(), []string{"extra"}); err == nil {
		t.Error("an argument was taken")
	}
}
