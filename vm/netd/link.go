package netd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the cable between the machine's card and the host's stack: one wire
// at most, frames of the guest filtered, frames of the stack queued.
type link struct {
	cfg    *Config
	filter filter
	gwMAC  net.HardwareAddr
	counts counts
	out    chan []byte   // whole frames to the guest
	quit   chan struct{} // closed by close
	ended  chan struct{} // closed when the machine's wire ended
	once   sync.Once

	disp atomic.Pointer[stack.NetworkDispatcher]

	mu    sync.Mutex
	wire  wire
	since time.Time
	mac   net.HardwareAddr
	seen  bool
}

// wire carries frames; readFrame returns the length of the frame it put into
// buf, or a length above len(buf) for one it had to skip.
type wire interface {
	readFrame(buf []byte) (int, error)
	writeFrames(frames [][]byte) error
	Close() error
}

// maxFrame is the longest frame taken from a machine: an IPv4 packet of the
// largest size behind an Ethernet header. maxWire is past what QEMU can send.
const (
	maxFrame = 65535 + etherLen
	maxWire  = 1 << 20
	outQueue = 256
)

func newLink(c *Config) (*link, error) {
	mac, err := net.ParseMAC(GatewayMAC)
	if err != nil {
		return nil, err
	}
	return &link{
		cfg:    c,
		gwMAC:  mac,
		filter: filter{guest: c.Guest, gateway: c.Gateway, gatewayMAC: mac, port: c.Port},
		out:    make(chan []byte, outQueue),
		quit:   make(chan struct{}),
		ended:  make(chan struct{}),
	}, nil
}

func (l *link) close() {
	l.once.Do(func() { close(l.quit) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil {
		_ = l.wire.Close()
	}
}

func (l *link) connectedOnce() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// up says whether a machine is connected now.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire != nil
}

// guestMAC is the address of the guest's card, known once the machine was started.
func (l *link) guestMAC() net.HardwareAddr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mac == nil && l.cfg.MACFile != "" {
		if b, err := os.ReadFile(l.cfg.MACFile); err == nil && len(b) <= 64 {
			if m, err := net.ParseMAC(strings.TrimSpace(string(b))); err == nil && len(m) == 6 {
				l.mac = m
			}
		}
	}
	return l.mac
}

// acceptQEMU takes the machine's connection; only one, ever.
func (l *link) acceptQEMU(ctx context.Context, ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if !l.attach(ctx, &streamWire{Conn: c, r: bufio.NewReaderSize(c, 256<<10)}) {
			l.counts.add(kExtra)
			_ = c.Close()
		}
	}
}

// acceptFDs takes a datagram socket that is passed over the "fd" socket, as
// Lima's vz driver does.
func (l *link) acceptFDs(ctx context.Context, ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		d, err := receiveFD(c.(*net.UnixConn))
		_ = c.Close()
		if err != nil {
			l.cfg.Log.Warn("no socket came over the fd socket", "err", err)
			continue
		}
		if !l.attach(ctx, &packetWire{d}) {
			l.counts.add(kExtra)
			_ = d.Close()
		}
	}
}

func receiveFD(c *net.UnixConn) (net.Conn, error) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	b, oob := make([]byte, 64), make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	msgs, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil || len(fds) == 0 {
			continue
		}
		f := os.NewFile(uintptr(fds[0]), "machine")
		defer f.Close()
		return net.FileConn(f)
	}
	return nil, errors.New("the message had no descriptor")
}

func (l *link) attach(ctx context.Context, w wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen {
		return false
	}
	l.seen, l.wire, l.since = true, w, time.Now()
	l.cfg.Log.Info("the machine's network card is connected")
	go l.write(w)
	go func() {
		err := l.read(w)
		l.mu.Lock()
		l.wire = nil
		l.mu.Unlock()
		_ = w.Close()
		if ctx.Err() == nil {
			l.cfg.Log.Info("the machine's network card is gone", "err", err)
		}
		close(l.ended)
	}()
	return true
}

// read passes frames of the guest through the filter until the wire ends.
func (l *link) read(w wire) error {
	buf := make([]byte, maxFrame)
	for {
		n, err := w.readFrame(buf)
		if err != nil {
			return err
		}
		if n > len(buf) {
			l.counts.add(kOversize)
			continue
		}
		frame := buf[:n]
		k, reply := l.filter.decide(frame, l.guestMAC())
		l.counts.add(k)
		if reply != nil {
			// Never wait here: a guest that does not read must not stop us from reading.
			select {
			case l.out <- reply:
			default:
				l.counts.add(kQueue)
			}
		}
		if k != kPass {
			continue
		}
		if d := l.disp.Load(); d != nil {
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame[etherLen:])})
			(*d).DeliverNetworkPacket(ipv4.ProtocolNumber, pkt)
			pkt.DecRef()
		}
	}
}

// write sends queued frames, several at a time when they wait.
func (l *link) write(w wire) {
	batch := make([][]byte, 0, 64)
	for {
		batch = batch[:0]
		select {
		case f := <-l.out:
			batch = append(batch, f)
		case <-l.ended:
			return
		case <-l.quit:
			return
		}
	more:
		for len(batch) < cap(batch) {
			select {
			case f := <-l.out:
				batch = append(batch, f)
			default:
				break more
			}
		}
		if err := w.writeFrames(batch); err != nil {
			_ = w.Close() // the reader ends too and says why
			return
		}
	}
}

// streamWire is QEMU's: each frame behind its length, four bytes, big endian.
type streamWire struct {
	net.Conn
	r    *bufio.Reader
	bufs net.Buffers
	hdrs [64][4]byte
}

func (w *streamWire) readFrame(buf []byte) (int, error) {
	var h [4]byte
	if _, err := io.ReadFull(w.r, h[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint32(h[:]))
	switch {
	case n > maxWire:
		return 0, errors.New("a frame's length makes no sense")
	case n > len(buf):
		_, err := w.r.Discard(n)
		return n, err
	}
	_, err := io.ReadFull(w.r, buf[:n])
	return n, err
}

func (w *streamWire) writeFrames(frames [][]byte) error {
	b := w.bufs[:0]
	for i, f := range frames {
		binary.BigEndian.PutUint32(w.hdrs[i][:], uint32(len(f)))
		b = append(b, w.hdrs[i][:], f)
	}
	w.bufs = b
	_, err := b.WriteTo(w.Conn)
	return err
}

// packetWire carries one frame per datagram.
type packetWire struct{ net.Conn }

func (w *packetWire) readFrame(buf []byte) (int, error) { return w.Read(buf) }

func (w *packetWire) writeFrames(frames [][]byte) error {
	for _, f := range frames {
		for {
			_, err := w.Write(f)
			if errors.Is(err, syscall.ENOBUFS) {
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// The rest makes link a stack.LinkEndpoint.

var _ stack.LinkEndpoint = (*link)(nil)

func (l *link) MTU() uint32                             { return uint32(l.cfg.MTU) }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return etherLen }
func (l *link) LinkAddress() tcpip.LinkAddress          { return tcpip.LinkAddress(l.gwMAC) }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}
func (l *link) IsAttached() bool                        { return l.disp.Load() != nil }
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired
}

func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.disp.Store(nil)
		return
	}
	l.disp.Store(&d)
}

// WritePackets queues frames of the stack. When the guest does not read it
// waits a little, which is TCP's back-pressure, then drops, which TCP repairs.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, p := range pkts.AsSlice() {
		if p.NetworkProtocolNumber != ipv4.ProtocolNumber || len(p.EgressRoute.RemoteLinkAddress) != 6 {
			n++ // nothing but IPv4 to the guest ever leaves
			continue
		}
		frame := make([]byte, 0, etherLen+p.Size())
		frame = append(frame, p.EgressRoute.RemoteLinkAddress...)
		frame = append(frame, l.gwMAC...)
		frame = binary.BigEndian.AppendUint16(frame, etherIPv4)
		for _, s := range p.AsSlices() {
			frame = append(frame, s...)
		}
		if !l.queue(frame) {
			return n, &tcpip.ErrNoBufferSpace{}
		}
		n++
	}
	return n, nil
}

func (l *link) queue(frame []byte) bool {
	select {
	case l.out <- frame:
		return true
	default:
	}
	if !l.up() {
		return false
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case l.out <- frame:
		return true
	case <-t.C:
	case <-l.ended:
	case <-l.quit:
	}
	l.counts.add(kQueue)
	return false
}

// setNeighbour tells the stack the guest's address, so that it never asks and
// never believes an answer.
func (l *link) setNeighbour(s *stack.Stack) bool {
	mac := l.guestMAC()
	if mac == nil || bytes.Equal(mac, l.gwMAC) {
		return false
	}
	return s.AddStaticNeighbor(nicID, ipv4.ProtocolNumber, tcpip.AddrFrom4(l.cfg.Guest.As4()), tcpip.LinkAddress(mac)) == nil
}
