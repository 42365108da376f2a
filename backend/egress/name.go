package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Target is where a connection wants to go, normalised once for policy and
// dialler alike.
type Target struct {
	Host string // lower-case ASCII name without a trailing dot, or an address literal
	Port int
	IP   netip.Addr // valid when Host is a literal
}

func (t Target) String() string {
	if t.IP.Is6() {
		return "[" + t.Host + "]:" + strconv.Itoa(t.Port)
	}
	return t.Host + ":" + strconv.Itoa(t.Port)
}

var profile = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.BidiRule(), idna.VerifyDNSLength(true))

// ParseTarget normalises host and port as they came on the wire. Anything that
// two programs could read differently is refused.
func ParseTarget(hostport string, defaultPort int) (Target, error) {
	if len(hostport) == 0 || len(hostport) > 300 {
		return Target{}, fmt.Errorf("the target %q has no usable length", cut(hostport))
	}
	if strings.ContainsAny(hostport, "\x00\r\n\t /\\@%?#\"'<>^`{|}") {
		return Target{}, fmt.Errorf("the target %q has a character that no host name holds", cut(hostport))
	}
	host, port := hostport, ""
	if strings.HasPrefix(hostport, "[") {
		end := strings.IndexByte(hostport, ']')
		if end < 0 {
			return Target{}, fmt.Errorf("the target %q lacks a closing bracket", cut(hostport))
		}
		host = hostport[1:end]
		rest := hostport[end+1:]
		if rest != "" {
			if rest[0] != ':' {
				return Target{}, fmt.Errorf("the target %q is malformed after the bracket", cut(hostport))
			}
			port = rest[1:]
		}
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Is6() || ip.Zone() != "" {
			return Target{}, fmt.Errorf("%q is no IPv6 address", cut(host))
		}
	} else if i := strings.LastIndexByte(hostport, ':'); i >= 0 {
		host, port = hostport[:i], hostport[i+1:]
		if strings.Contains(host, ":") {
			return Target{}, fmt.Errorf("the address in %q needs brackets", cut(hostport))
		}
	}
	n := defaultPort
	if port != "" {
		v, err := strconv.ParseUint(port, 10, 16)
		if err != nil || v == 0 || strconv.FormatUint(v, 10) != port {
			return Target{}, fmt.Errorf("%q is no port", cut(port))
		}
		n = int(v)
	}
	if n == 0 {
		return Target{}, fmt.Errorf("the target %q names no port", cut(hostport))
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return Target{Host: ip.Unmap().String(), Port: n, IP: ip.Unmap()}, nil
	}
	host = strings.TrimSuffix(host, ".")
	ascii, err := profile.ToASCII(host)
	if err != nil {
		return Target{}, fmt.Errorf("%q is no valid host name: %w", cut(host), err)
	}
	ascii = strings.ToLower(ascii)
	if err := checkName(ascii); err != nil {
		return Target{}, err
	}
	return Target{Host: ascii, Port: n}, nil
}

// checkName accepts LDH names (and underscores) whose last label is not a
// number: resolvers read "127.1", "0x7f.1" and "2130706433" as addresses.
func checkName(name string) error {
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return fmt.Errorf("%q is no valid host name", cut(name))
		}
		for i := range len(l) {
			c := l[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return fmt.Errorf("%q has a character that no host name holds", cut(name))
			}
		}
	}
	last := labels[len(labels)-1]
	if last[0] >= '0' && last[0] <= '9' {
		return fmt.Errorf("%q looks like a number; write addresses in the usual form", cut(name))
	}
	return nil
}

// cut bounds guest text in errors.
func cut(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
