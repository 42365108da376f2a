package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

var errSignal = errors.New("interrupted")

// interrupts is where a command may take Ctrl-C for itself; otherwise it ends the command.
type interrupts struct {
	mu   sync.Mutex
	take func() bool
}

// catch hands every Ctrl-C to f until release is called; f says false when the
// command should end after all.
func (i *interrupts) catch(f func() bool) (release func()) {
	if i == nil {
		return func() {}
	}
	i.mu.Lock()
	i.take = f
	i.mu.Unlock()
	return func() {
		i.mu.Lock()
		i.take = nil
		i.mu.Unlock()
	}
}

// taken tells of a Ctrl-C and reports whether a command took it.
func (i *interrupts) taken() bool {
	i.mu.Lock()
	f := i.take
	i.mu.Unlock()
	return f != nil && f()
}

// context ends at the first Ctrl-C that no command takes, or when asked to end.
func (i *interrupts) context(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	go func() {
		for {
			select {
			case s := <-sigs:
				if s == os.Interrupt && i.taken() {
					continue
				}
				cancel(errSignal)
			case <-parent.Done():
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(sigs); cancel(nil) }
}
