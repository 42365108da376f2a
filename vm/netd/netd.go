// Package netd is the network process of one Lima machine. It takes the place of
// Lima's user-v2 network daemon: QEMU's only network card ends here, in a
// switch with one port and no way out.
//
// What a guest can do with its card, as root or not:
//
//   - ask for the gateway's hardware address, and get it;
//   - answer the one TCP connection that the host makes to guestd's port;
//   - nothing else. TCP to any address is reset, everything else (UDP, ICMP, DHCP,
//     DNS, IPv6, other ARP, spoofed sources, fragments) is dropped and counted.
//
// Frames of the guest are checked by filter.go before gVisor's TCP/IP stack
// sees them; only segments of connections that the host opened pass. There is no
// forwarder, no NAT, no resolver and no listener on the guest's side.
//
// The host's side is the unix socket "chan.sock": each connection to it is one
// TCP connection to guestd. It starts with one line of netd's own, "ok" or
// "no REASON", and then carries raw bytes in both directions with half-close.
//
// The process lives as long as the virtual machine, not as long as the core:
// QEMU's socket cannot reconnect. It ends when QEMU's connection ends, when no
// QEMU comes, when its pid file is taken away, or on SIGTERM. Lima sends that by
// "pkill -F" of the pid file when an instance is stopped or deleted through
// limactl, and when another instance of the same Lima home starts; the driver
// does none of that and gives each machine a home of its own.
package netd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Defaults of a machine's link; the guest gets the same on its kernel command line.
const (
	DefaultMTU   = 65000
	DefaultPort  = 1021
	GatewayMAC   = "5a:94:ef:e4:0c:dd"
	GuestAddr    = "192.168.104.3"
	GatewayAddr  = "192.168.104.2"
	NetworkAddr  = "192.168.104.0"
	SubnetPrefix = 24
)

// Config of one network process. Paths must be shorter than a unix socket's limit.
type Config struct {
	Dir       string // Lima's folder of the network: pid file and {qemu,fd,ep} sockets
	Name      string // Lima's name of the network
	Chan      string // the host's socket to guestd
	MACFile   string // holds the guest's hardware address once the machine is started
	SerialLog string // file that QEMU appends to; kept below SerialMax
	SerialMax int64

	Guest, Gateway netip.Addr
	Port           uint16
	MTU            int

	// NoVM is how long to wait for QEMU's first connection, Linger how long to
	// stay after it ended, Check how often files are looked at.
	NoVM, Linger, Check time.Duration

	Log *slog.Logger
}

func (c *Config) defaults() error {
	if c.Dir == "" || c.Name == "" || c.Chan == "" {
		return errors.New("netd needs the network's folder, its name and the channel's path")
	}
	if !c.Guest.IsValid() {
		c.Guest = netip.MustParseAddr(GuestAddr)
	}
	if !c.Gateway.IsValid() {
		c.Gateway = netip.MustParseAddr(GatewayAddr)
	}
	if !c.Guest.Is4() || !c.Gateway.Is4() {
		return errors.New("the link's addresses must be IPv4")
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.MTU < 576 || c.MTU > 65000 {
		return fmt.Errorf("the link's MTU %d is outside 576..65000", c.MTU)
	}
	for d, def := range map[*time.Duration]time.Duration{&c.NoVM: 3 * time.Minute, &c.Linger: 2 * time.Second, &c.Check: 2 * time.Second} {
		if *d == 0 {
			*d = def
		}
	}
	if c.SerialMax == 0 {
		c.SerialMax = 4 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// PidFile is where Lima looks for its network's process.
func (c *Config) PidFile() string { return filepath.Join(c.Dir, "usernet_"+c.Name+".pid") }

// Sock is one of the sockets that Lima expects: "qemu", "fd" or "ep".
func (c *Config) Sock(kind string) string { return filepath.Join(c.Dir, c.Name+"_"+kind+".sock") }

// Main runs the hidden command "netd"; args are its arguments. It returns when
// the machine is gone. Its log goes to stderr.
func Main(ctx context.Context, args []string) error {
	var c Config
	fs := flag.NewFlagSet("netd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.Dir, "dir", "", "folder of Lima's network")
	fs.StringVar(&c.Name, "name", "gh", "name of Lima's network")
	fs.StringVar(&c.Chan, "chan", "", "the host's socket to guestd")
	fs.StringVar(&c.MACFile, "macfile", "", "file with the guest's hardware address")
	fs.StringVar(&c.SerialLog, "seriallog", "", "console log to keep small")
	fs.IntVar(&c.MTU, "mtu", DefaultMTU, "MTU of the link")
	fs.DurationVar(&c.NoVM, "novm", 0, "how long to wait for QEMU")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("netd: %w", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("netd: unexpected argument %q", fs.Arg(0))
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	return Run(ctx, c)
}

// Run serves one machine's network until ctx ends or the machine is gone.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.defaults(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("netd cannot make its folder: %w", err)
	}
	if err := claim(c.PidFile()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var closers []func()
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
		if readPid(c.PidFile()) == os.Getpid() {
			_ = os.Remove(c.PidFile())
		}
		c.Log.Info("netd ends", "err", err)
	}()
	listen := func(path string) (net.Listener, error) {
		if len(path) > 102 {
			return nil, fmt.Errorf("the socket path %q has %d bytes, more than a unix socket may have (102)", path, len(path))
		}
		// Listening under another name first: who sees the socket can connect.
		tmp := path + "~"
		_ = os.Remove(tmp)
		l, err := net.Listen("unix", tmp)
		if err != nil {
			return nil, fmt.Errorf("netd cannot listen: %w", err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		closers = append(closers, func() { _ = l.Close(); _ = os.Remove(path) })
		if err := os.Chmod(tmp, 0o600); err != nil {
			return nil, err
		}
		return l, os.Rename(tmp, path)
	}

	lk, err := newLink(&c)
	if err != nil {
		return err
	}
	closers = append(closers, lk.close)
	st, err := newStack(&c, lk)
	if err != nil {
		return err
	}
	closers = append(closers, st.close)

	ep, err := listen(c.Sock("ep"))
	if err != nil {
		return err
	}
	fd, err := listen(c.Sock("fd"))
	if err != nil {
		return err
	}
	ch, err := listen(c.Chan)
	if err != nil {
		return err
	}
	// The QEMU socket comes last: Lima starts a machine as soon as it is there.
	ql, err := listen(c.Sock("qemu"))
	if err != nil {
		return err
	}

	srv := &http.Server{Handler: services(&c, lk), ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = srv.Serve(ep) }()
	closers = append(closers, func() { _ = srv.Close() })
	go lk.acceptFDs(ctx, fd)
	go lk.acceptQEMU(ctx, ql)
	d := &door{cfg: &c, stack: st, link: lk}
	done := make(chan struct{})
	go func() { defer close(done); d.serve(ctx, ch) }()
	closers = append(closers, func() { cancel(); _ = ch.Close(); <-done })

	c.Log.Info("netd serves", "pid", os.Getpid(), "guest", c.Guest, "mtu", c.MTU)
	return watch(ctx, &c, lk)
}

// watch ends with the machine and does the small repeated chores.
func watch(ctx context.Context, c *Config, lk *link) error {
	tick := time.NewTicker(c.Check)
	defer tick.Stop()
	start := time.Now()
	report := newReporter(c.Log, &lk.counts)
	defer report.final()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lk.ended:
			c.Log.Info("the machine closed its network connection")
			select {
			case <-ctx.Done():
			case <-time.After(c.Linger):
			}
			return nil
		case <-tick.C:
		}
		if !lk.connectedOnce() && time.Since(start) > c.NoVM {
			return fmt.Errorf("no machine connected within %s", c.NoVM)
		}
		if readPid(c.PidFile()) != os.Getpid() {
			return errors.New("the pid file was taken away")
		}
		if c.SerialLog != "" {
			capLog(c.SerialLog, c.SerialMax)
		}
		report.tick(time.Now())
	}
}

// claim writes the pid file, refusing when another live netd holds it.
func claim(path string) error {
	if pid := readPid(path); pid > 0 && pid != os.Getpid() && syscall.Kill(pid, 0) == nil && isNetd(pid) {
		return fmt.Errorf("another network process (pid %d) serves this machine", pid)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return fmt.Errorf("netd cannot write its pid file: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("netd cannot write its pid file: %w", err)
	}
	return nil
}

// isNetd tells a live netd from another process that got a dead one's number.
// Where the command line cannot be read the pid is believed.
func isNetd(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		_, statErr := os.Stat("/proc/self")
		return statErr != nil
	}
	return strings.Contains(string(b), "\x00netd\x00")
}

func readPid(path string) int {
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 32 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n <= 0 {
		return 0
	}
	return n
}

// capLog keeps a log that the guest can write to from filling the host's disk:
// past max its last part moves to path+".1" and it starts anew. QEMU appends, so
// cutting it under QEMU is safe.
func capLog(path string, max int64) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() <= max {
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	tail := make([]byte, 64<<10)
	if n, err := f.ReadAt(tail, fi.Size()-int64(len(tail))); n > 0 && (err == nil || err == io.EOF) {
		_ = os.WriteFile(path+".1", tail[:n], 0o600)
	}
	_ = f.Truncate(0)
}
