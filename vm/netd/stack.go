package netd

import (
	"context"
	"fmt"
	"net"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const nicID = 1

// netstack is the host's end of the link: TCP over IPv4, outgoing only, with no
// listener, no forwarding and no promiscuous mode.
type netstack struct {
	*stack.Stack
	cfg  *Config
	link *link

	mu    sync.Mutex
	known bool // the guest's hardware address is in the neighbour table
}

func newStack(c *Config, l *link) (*netstack, error) {
	s := stack.New(stack.Options{
		// arp is needed for the neighbour table; its packets never pass the filter.
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	delay := tcpip.TCPDelayEnabled(false)
	recv := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: 1 << 20, Max: 8 << 20}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: 1 << 20, Max: 8 << 20}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &delay, &recv, &send} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return nil, fmt.Errorf("netd's TCP does not take %T: %s", o, err)
		}
	}
	if err := s.CreateNIC(nicID, l); err != nil {
		return nil, fmt.Errorf("netd cannot make its card: %s", err)
	}
	gw := tcpip.AddrFrom4(c.Gateway.As4())
	if err := s.AddProtocolAddress(nicID, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: gw, PrefixLen: 32},
	}, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("netd cannot take the gateway's address: %s", err)
	}
	// One route, to one address.
	guest := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(c.Guest.As4()), PrefixLen: 32}
	s.SetRouteTable([]tcpip.Route{{Destination: guest.Subnet(), NIC: nicID}})
	return &netstack{Stack: s, cfg: c, link: l}, nil
}

func (s *netstack) close() { s.Destroy() }

// dial opens a connection to guestd's port.
func (s *netstack) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	if !s.known {
		s.known = s.link.setNeighbour(s.Stack)
	}
	known := s.known
	s.mu.Unlock()
	if !known {
		return nil, errNoVM
	}
	local := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(s.cfg.Gateway.As4())}
	remote := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(s.cfg.Guest.As4()), Port: s.cfg.Port}
	c, err := gonet.DialTCPWithBind(ctx, s.Stack, local, remote, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return c, nil
}
