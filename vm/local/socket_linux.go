//go:build amd64 || arm64

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dialSocket connects to a unix socket in a folder that the guest can write.
//
// The path is opened without following links and checked to be a socket of the
// user it should be of, and the connection goes to what was opened: a guest that
// puts a link to a host's socket there gains nothing. It also makes the length
// of the path not matter (a socket address holds 107 bytes).
func dialSocket(ctx context.Context, dir, name string, uid int) (net.Conn, error) {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("no socket of the machine at %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket; something inside the machine replaced it: stop and start the machine", path)
	}
	if int(st.Uid) != uid {
		return nil, fmt.Errorf("%s belongs to user %d and not to %d; it is not trusted", path, st.Uid, uid)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("the machine does not answer on %s: %w", path, err)
	}
	if err := samePeer(conn.(*net.UnixConn), uid); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func samePeer(c *net.UnixConn, uid int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if cerr != nil {
		return fmt.Errorf("cannot ask who listens on the machine's socket: %w", cerr)
	}
	if int(cred.Uid) != uid {
		return errors.New("another user than the machine's listens on its socket; it is not trusted")
	}
	return nil
}
