//go:build linux

// Package frame is the way guestd's own processes speak with each other: typed
// frames on a unix stream socket, with open files attached where needed.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Max is the largest payload of a frame.
const Max = 2 << 20

const maxFiles = 8

// Conn is one end. Send may be called from several goroutines, Recv from one.
type Conn struct {
	c  *net.UnixConn
	wr sync.Mutex
	// Pollable makes received files non-blocking, for an end that reads them
	// itself. Files that a command will get must stay as they are.
	Pollable bool
}

// New wraps a connected socket.
func New(c *net.UnixConn) *Conn { return &Conn{c: c} }

// FromFD takes over a socket that was inherited as a descriptor.
func FromFD(fd int) (*Conn, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no socket: %w", fd, err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %d is no unix socket", fd)
	}
	return New(u), nil
}

// Pair makes two connected ends: ours, and a file to hand to a child.
func Pair() (*Conn, *os.File, error) {
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(p[1]), "socketpair")
	f := os.NewFile(uintptr(p[0]), "socketpair")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return New(c.(*net.UnixConn)), theirs, nil
}

func (c *Conn) Close() error { return c.c.Close() }

// Send encodes v as JSON (nil = no payload). Attached files become blocking.
func (c *Conn) Send(typ byte, v any, files ...*os.File) error {
	var b []byte
	if v != nil {
		var err error
		if b, err = json.Marshal(v); err != nil {
			return err
		}
	}
	return c.SendRaw(typ, b, files...)
}

// SendRaw sends payload as it is.
func (c *Conn) SendRaw(typ byte, payload []byte, files ...*os.File) error {
	if len(payload) > Max {
		return fmt.Errorf("frame of %d bytes is too large", len(payload))
	}
	b := make([]byte, 5, 5+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload)))
	b[4] = typ
	b = append(b, payload...)
	c.wr.Lock()
	defer c.wr.Unlock()
	if len(files) == 0 {
		_, err := c.c.Write(b)
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := c.c.WriteMsgUnix(b, syscall.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = c.c.Write(b[n:])
	}
	return err
}

// Frame is one message.
type Frame struct {
	Type    byte
	Payload []byte
}

// SendFrames sends several frames in one write, without files.
func (c *Conn) SendFrames(frames ...Frame) error {
	var b []byte
	for _, f := range frames {
		if len(f.Payload) > Max {
			return fmt.Errorf("frame of %d bytes is too large", len(f.Payload))
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.Payload)))
		b = append(append(b, f.Type), f.Payload...)
	}
	c.wr.Lock()
	defer c.wr.Unlock()
	_, err := c.c.Write(b)
	return err
}

// Recv returns the next frame; the caller owns the files.
func (c *Conn) Recv() (typ byte, payload []byte, files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
		}
	}()
	var head [5]byte
	oob := make([]byte, syscall.CmsgSpace(4*maxFiles))
	for got := 0; got < len(head); {
		n, on, _, _, err := c.c.ReadMsgUnix(head[got:], oob)
		if on > 0 {
			files = append(files, c.takeFiles(oob[:on])...)
		}
		if err != nil {
			return 0, nil, files, err
		}
		if n == 0 {
			if got == 0 {
				return 0, nil, files, io.EOF
			}
			return 0, nil, files, io.ErrUnexpectedEOF
		}
		got += n
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > Max {
		return 0, nil, files, errors.New("frame is too large")
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(c.c, payload); err != nil {
		return 0, nil, files, err
	}
	return head[4], payload, files, nil
}

func (c *Conn) takeFiles(oob []byte) (files []*os.File) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			if c.Pollable {
				_ = syscall.SetNonblock(fd, true) // else a thread waits in place of the poller
			}
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}
