package egress

import (
	"fmt"
	"net"
	"net/netip"
)

// Ranges no guest may reach whatever its name resolves to. The documentation
// ranges are absent on purpose: nothing real lives there, so treating them as
// public costs nothing and lets a test network exist without a way round the check.
var refused = []struct {
	net netip.Prefix
	why string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this host"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's private network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "this host's loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (cloud metadata lives there)"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private network"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved range"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private network"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmark network"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved range"},
	{netip.MustParsePrefix("::/128"), "this host"},
	{netip.MustParsePrefix("::1/128"), "this host's loopback"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("100::/64"), "a discard range"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo tunnel"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 tunnel"},
	{netip.MustParsePrefix("fc00::/7"), "a private network"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "a private network"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

var documentation = []netip.Prefix{
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
}

// CheckPublic returns an error saying why an address is out of bounds.
func CheckPublic(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	if !ip.IsValid() {
		return fmt.Errorf("not an address")
	}
	for _, d := range documentation {
		if d.Contains(ip) {
			return nil
		}
	}
	for _, r := range refused {
		if r.net.Contains(ip) {
			return fmt.Errorf("%s is %s", ip, r.why)
		}
	}
	if lan, ok := onLAN(ip); ok {
		return fmt.Errorf("%s is on this computer's own network %s", ip, lan)
	}
	return nil
}

// onLAN reports whether ip lies in the subnet of one of the host's interfaces:
// public addresses can be a LAN too.
func onLAN(ip netip.Addr) (netip.Prefix, bool) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Masked().Contains(ip) {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}
