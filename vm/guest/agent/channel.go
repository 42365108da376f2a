//go:build linux

package agent

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

func (s *server) register(g *grpc.Server, n *session, greeted func()) {
	proto.RegisterChannelServer(g, &channelService{s: s, n: n, greeted: greeted})
	proto.RegisterExecServer(g, &execService{s: s, n: n})
	proto.RegisterBrowserServer(g, &browserService{s: s})
	s.registerParts(g)
}

type channelService struct {
	proto.UnimplementedChannelServer
	s       *server
	n       *session
	greeted func()
}

func (c *channelService) Hello(ctx context.Context, q *proto.HelloRequest) (*proto.HelloReply, error) {
	if q.Generation < 1 {
		return nil, status.Error(codes.InvalidArgument, "the host named no generation")
	}
	if len(q.Hostname) > 64 || len(q.Seed) > 4096 {
		return nil, status.Error(codes.InvalidArgument, "a field of the hello is too long")
	}
	hash, err := c.s.hash()
	if err != nil {
		return nil, err
	}
	notes := append([]string(nil), c.s.cfg.Notes...)
	if c.s.cfg.Kind == KindVM {
		if err := adopt(q); err != nil {
			log.Printf("hello: %v", err)
			notes = append(notes, err.Error())
		}
	}
	host, _ := os.Hostname()
	if c.n.hello.CompareAndSwap(false, true) {
		c.greeted()
		c.s.promote(c.n)
	}
	return &proto.HelloReply{
		Generation: min(guest.Generation, q.Generation), BootId: c.s.cfg.BootID, AgentHash: hash, Hostname: host,
		Kind: c.s.cfg.Kind, Cgroups: c.s.cfg.Cgroups != "", Notes: notes,
	}, nil
}

// adopt makes a VM what its host says it is: time, name, randomness, identity.
func adopt(q *proto.HelloRequest) error {
	var errs []error
	if q.Now != 0 {
		if d := time.Since(time.Unix(0, q.Now)); d > time.Second || d < -time.Second {
			ts := unix.NsecToTimespec(q.Now)
			if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
				errs = append(errs, fmt.Errorf("the clock cannot be set: %w", err))
			}
		}
	}
	if len(q.Seed) > 0 {
		if err := reseed(q.Seed); err != nil {
			errs = append(errs, fmt.Errorf("fresh randomness cannot be mixed in: %w", err))
		}
	}
	if q.Hostname != "" {
		if err := SetHostname(q.Hostname); err != nil {
			errs = append(errs, fmt.Errorf("the host name cannot be set: %w", err))
		}
	}
	if q.FreshIdentity {
		if err := newMachineID(); err != nil {
			errs = append(errs, fmt.Errorf("the machine id cannot be made: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c *channelService) Stats(context.Context, *proto.StatsRequest) (*proto.StatsReply, error) {
	return c.s.stats.read()
}

func (c *channelService) Shutdown(context.Context, *proto.ShutdownRequest) (*proto.ShutdownReply, error) {
	time.AfterFunc(20*time.Millisecond, func() { // after the answer left
		c.s.end()
		os.Exit(ExitPowerOff)
	})
	return &proto.ShutdownReply{}, nil
}

const maxBinary = 128 << 20

func (c *channelService) Upgrade(st grpc.ClientStreamingServer[proto.UpgradeChunk, proto.UpgradeReply]) error {
	if c.s.cfg.Kind != KindVM {
		return status.Error(codes.Unimplemented, "guestd is bound into a sandbox from outside; restart the machine with the new one")
	}
	first, err := st.Recv()
	if err != nil {
		return err
	}
	if len(first.Sha256) != 64 || first.Size <= 0 || first.Size > maxBinary {
		return status.Error(codes.InvalidArgument, "the upgrade names no hash or an impossible size")
	}
	dst, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	dst = strings.TrimSuffix(dst, " (deleted)")
	f, err := os.CreateTemp(filepath.Dir(dst), ".guestd-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, h), 256<<10)
	var n int64
	for m := first; ; {
		n += int64(len(m.Data))
		if n > first.Size {
			return status.Error(codes.InvalidArgument, "the binary is longer than announced")
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
		if m, err = st.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o755), f.Sync()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != first.Size || sum != first.Sha256 {
		return status.Error(codes.DataLoss, "the binary arrived damaged")
	}
	os.Remove(dst + ".sha256")
	if err := os.Rename(f.Name(), dst); err != nil {
		return err
	}
	if err := os.WriteFile(dst+".sha256", []byte(first.Sha256+"\n"), 0o644); err != nil {
		return err
	}
	syscall.Sync()
	if err := st.SendAndClose(&proto.UpgradeReply{}); err != nil {
		return err
	}
	log.Printf("upgraded to %.12s", first.Sha256)
	time.AfterFunc(20*time.Millisecond, func() { os.Exit(ExitRestart) })
	return nil
}

// selfHash is the running binary's hash. The file beside it, written with the
// binary, spares the reading.
func selfHash() (string, error) {
	if b, err := os.ReadFile("/usr/lib/glasshouse/guestd.sha256"); err == nil && os.Getuid() == 0 {
		if w := strings.Fields(string(b)); len(w) > 0 && len(w[0]) == 64 {
			return w[0], nil
		}
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("guestd cannot read itself: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
