package image

import (
	"fmt"
	"io"
)

// cpioWriter writes the "newc" archives that the kernel unpacks as its first root. Several may follow one another in
// one file; each starts at a multiple of 512 bytes here.
type cpioWriter struct {
	w   io.Writer
	n   int64
	ino uint32
	err error
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioLink = 0o120000
)

// add writes one entry; body has exactly size bytes. Parents must come before their children. The first error is
// returned by every later call too, and by close.
func (c *cpioWriter) add(name string, mode uint32, size int64, body io.Reader) error {
	if c.err == nil && (size < 0 || size > 1<<32-1) {
		c.err = fmt.Errorf("%s does not fit a cpio archive", name)
	}
	if c.err != nil {
		return c.err
	}
	c.ino++
	c.header(name, c.ino, mode, uint32(size))
	if c.err == nil && size > 0 {
		var n int64
		n, c.err = io.CopyN(c.w, body, size)
		c.n += n
	}
	c.pad(4)
	return c.err
}

func (c *cpioWriter) header(name string, ino, mode, size uint32) {
	nlink := uint32(1)
	if mode&0o170000 == cpioDir {
		nlink = 2
	}
	c.write(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		ino, mode, 0, 0, nlink, 0, size, 0, 0, 0, 0, len(name)+1, 0, name))
	c.pad(4)
}

func (c *cpioWriter) write(s string) {
	if c.err == nil {
		var n int
		n, c.err = io.WriteString(c.w, s)
		c.n += int64(n)
	}
}

func (c *cpioWriter) pad(to int64) {
	if rest := c.n % to; rest != 0 {
		c.write(string(make([]byte, to-rest)))
	}
}

func (c *cpioWriter) close() error {
	c.header("TRAILER!!!", 0, 0, 0)
	c.pad(512)
	return c.err
}
