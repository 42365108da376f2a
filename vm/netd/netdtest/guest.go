// Package netdtest is a guest's end of the wire for tests: a TCP/IP stack that
// speaks QEMU's framing on a connection, as a virtual machine's card does.
package netdtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	mtu      = 65000
	etherLen = 14
	maxFrame = 128 << 10
)

// Guest is a stack with one card and a default route, with everything a Linux
// guest could try: TCP, UDP, ICMP and ARP.
type Guest struct {
	*stack.Stack
	conn   net.Conn
	ch     *channel.Endpoint
	cancel context.CancelFunc
	mu     sync.Mutex
	Gone   chan struct{} // closed when the wire ended
}

// Attach gives a guest the wire conn, the hardware address mac, and the
// addresses addr (with a prefix length of 24) and gateway.
func Attach(conn net.Conn, mac, addr, gateway string) (*Guest, error) {
	m, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	g := &Guest{conn: conn, Gone: make(chan struct{})}
	g.ch = channel.New(512, mtu+etherLen, tcpip.LinkAddress(m))
	g.Stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := g.CreateNIC(1, ethernet.New(g.ch)); err != nil {
		return nil, fmt.Errorf("%s", err)
	}
	a := tcpip.AddressWithPrefix{Address: Addr(addr), PrefixLen: 24}
	if err := g.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: a}, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("%s", err)
	}
	g.SetRouteTable([]tcpip.Route{{Destination: a.Subnet(), NIC: 1}, {Destination: header.IPv4EmptySubnet, Gateway: Addr(gateway), NIC: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go g.send(ctx)
	go g.receive()
	return g, nil
}

// Addr is an IPv4 address in the stack's form.
func Addr(s string) tcpip.Address { return tcpip.AddrFrom4(netip.MustParseAddr(s).As4()) }

func (g *Guest) send(ctx context.Context) {
	for {
		p := g.ch.ReadContext(ctx)
		if p == nil {
			return
		}
		v := p.ToView()
		err := g.WriteFrame(v.AsSlice())
		p.DecRef()
		if err != nil {
			return
		}
	}
}

func (g *Guest) receive() {
	defer close(g.Gone)
	r := bufio.NewReaderSize(g.conn, 256<<10)
	buf := make([]byte, maxFrame)
	for {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(h[:]))
		if n < etherLen || n > len(buf) {
			return
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:n])})
		g.ch.InjectInbound(tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(buf[12:14])), pkt)
		pkt.DecRef()
	}
}

// WriteFrame puts any bytes on the wire as one frame.
func (g *Guest) WriteFrame(b []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// Listen opens a TCP port in the guest.
func (g *Guest) Listen(port uint16) (net.Listener, error) {
	return gonet.ListenTCP(g.Stack, tcpip.FullAddress{NIC: 1, Port: port}, ipv4.ProtocolNumber)
}

// DialTCP tries to connect from the guest to an address; from is the local
// port, 0 for any.
func (g *Guest) DialTCP(ctx context.Context, addr string, port, from uint16) (net.Conn, error) {
	c, err := gonet.DialTCPWithBind(ctx, g.Stack, tcpip.FullAddress{NIC: 1, Port: from}, tcpip.FullAddress{NIC: 1, Addr: Addr(addr), Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// DialUDP makes a UDP socket in the guest.
func (g *Guest) DialUDP(addr string, port uint16) (net.Conn, error) {
	c, err := gonet.DialUDP(g.Stack, nil, &tcpip.FullAddress{NIC: 1, Addr: Addr(addr), Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close takes the card off the wire.
func (g *Guest) Close() {
	g.cancel()
	_ = g.conn.Close()
	g.Stack.Close()
}
