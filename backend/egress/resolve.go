package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

const hostsFile = "/etc/hosts"

// SystemResolve is what a Config without Resolve uses.
func SystemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return systemResolve(ctx, host)
}

// systemResolve asks the system's resolver for exactly the name that was shown. The
// dot at its end keeps search domains out, which could make another name of it; it
// also hides the name from the hosts file, so that is read first.
func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if f, err := os.Open(hostsFile); err == nil {
		found := inHosts(f, host)
		f.Close()
		if len(found) > 0 {
			return found, nil
		}
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

func inHosts(r io.Reader, host string) (found []netip.Addr) {
	lines := bufio.NewScanner(io.LimitReader(r, 4<<20))
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(text)
		if len(f) < 2 || !slices.ContainsFunc(f[1:], func(n string) bool { return strings.EqualFold(strings.TrimSuffix(n, "."), host) }) {
			continue
		}
		if a, err := netip.ParseAddr(f[0]); err == nil {
			found = append(found, a.WithZone(""))
		}
	}
	return found
}
