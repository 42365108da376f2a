package gittest

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// ServeSSH lets sshd answer what comes to a port of this computer, a process for each
// connection, until the test ends. The listener is the test's own from the beginning: a
// port that is looked for, given back and taken again by its number may be somebody
// else's by then. conf is read anew for each connection.
func ServeSSH(t testing.TB, sshd, conf string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f, err := c.(*net.TCPConn).File()
			_ = c.Close()
			if err != nil {
				t.Errorf("sshd: %v", err)
				continue
			}
			open.Go(func() {
				defer f.Close()
				cmd := exec.Command(sshd, "-i", "-e", "-f", conf)
				cmd.Stdin, cmd.Stdout = f, f
				_ = cmd.Run() // a client that is refused is an error too
			})
		}
	})
	return port
}
