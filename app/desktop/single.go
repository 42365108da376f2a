package desktop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrRaised: another window over the same data is open; it was brought to the front.
var ErrRaised = errors.New("the window is open already and was brought to the front")

// Instance is the one window of a data folder.
type Instance struct {
	lock *os.File
	l    net.Listener
	path string
	wg   sync.WaitGroup
}

// raiseWait bounds how long a second window waits for the first one's answer.
const raiseWait = 10 * time.Second

// tokens are what a desktop gives a program that it starts, so that its window may
// take the focus.
var tokens = regexp.MustCompile(`^[A-Za-z0-9_.:+/-]{1,200}$`)

// Claim makes this process the one window, or asks the one there is to come to the
// front and returns ErrRaised. The lock is the kernel's: it goes with the process,
// however that ends. A session bus is not needed.
func Claim(lock, socket string) (*Instance, error) {
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the window's lock cannot be opened: %w\n  check the permissions of its folder", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		if err := raise(socket); err != nil {
			return nil, fmt.Errorf("a window is open already, and it does not answer: %w\n  close it, or end its process, and try again", err)
		}
		return nil, ErrRaised
	}
	_ = os.Remove(socket) // ours by the lock; a leftover of a window that was killed
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("the window's socket cannot be made: %w", err)
	}
	return &Instance{lock: f, l: l, path: socket}, nil
}

// raise asks the window behind a socket to come to the front. It may be only just
// starting, so it is asked again for a while.
func raise(socket string) error {
	deadline := time.Now().Add(raiseWait)
	for {
		err := raiseOnce(socket, deadline)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func raiseOnce(socket string, deadline time.Time) error {
	c, err := net.DialTimeout("unix", socket, raiseWait)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(deadline)
	token := os.Getenv("XDG_ACTIVATION_TOKEN")
	if token == "" {
		token = os.Getenv("DESKTOP_STARTUP_ID")
	}
	if !tokens.MatchString(token) {
		token = ""
	}
	if _, err := fmt.Fprintf(c, "raise %s\n", token); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(c, 64)).ReadString('\n')
	if err != nil {
		return err
	}
	if line != "ok\n" {
		return fmt.Errorf("it answered %q", line)
	}
	return nil
}

// Serve calls up for each later start, with the desktop's token for taking the
// focus or "", until the context ends.
func (i *Instance) Serve(ctx context.Context, up func(token string)) {
	stop := context.AfterFunc(ctx, func() { i.l.Close() })
	i.wg.Go(func() {
		defer stop()
		for {
			c, err := i.l.Accept()
			if err != nil {
				return
			}
			// One at a time: there is nothing to gain from more.
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			line, err := bufio.NewReader(io.LimitReader(c, 256)).ReadString('\n')
			if word, token, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); err == nil && word == "raise" {
				if !tokens.MatchString(token) {
					token = ""
				}
				up(token)
				_, _ = io.WriteString(c, "ok\n")
			}
			c.Close()
		}
	})
}

// Close gives the place up.
func (i *Instance) Close() {
	i.l.Close()
	i.wg.Wait()
	_ = os.Remove(i.path)
	i.lock.Close()
}
