//go:build desktop

package desktop

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/wailsapp/wails/v2/pkg/runtime"
)

// Native is all that the page can do beyond HTTP. Every exported method can be
// called by the page's scripts, so there are few, and none reads, writes or starts
// anything but by the person's own hand.
type Native struct {
	link     *Link
	instance *Instance
	state    string
	notices  *Notices

	mu      sync.Mutex
	ctx     context.Context // the toolkit's; nil: not started yet
	place   Place
	saved   Place
	outer   context.Context // the program's; over: a signal ends it
	closing bool            // the person knows and it closes now
	asking  bool            // the dialog about closing is open
	leaving bool            // it closes: a second order would reach a window that is gone
	end     context.CancelFunc
	wg      sync.WaitGroup
	pick    sync.Mutex
}

// Names of the events that the page is sent.
const (
	eventAction = "action" // do the action of this id
	eventShow   = "show"   // bring the question or session of this id into view
)

func newNative(o Options) *Native {
	p, err := readPlace(o.State)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	n := &Native{link: o.Link, instance: o.Instance, state: o.State, place: p, saved: p}
	n.notices = newNotices(newBoard(n.show), func() bool { return !viewActive() })
	n.notices.Quiet(p.Quiet)
	return n
}

// start begins what goes on beside the page; stop ends it. outer is the program's
// own context, which a signal ends; the toolkit closes the window then by itself.
func (n *Native) start(outer, app context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(outer))
	n.mu.Lock()
	n.ctx, n.outer, n.end = app, outer, cancel
	p := n.place
	n.mu.Unlock()
	openView(p, n.notices.Looked)
	n.hints()
	n.instance.Serve(ctx, presentView)
	w := &watcher{http: &http.Client{Transport: n.link.Plain()}, notices: n.notices, ended: n.link.Ended}
	n.wg.Go(func() { w.run(ctx) })
	n.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
				n.keep()
			}
		}
	})
}

func (n *Native) stop() {
	n.keep()
	n.notices.Close()
	n.mu.Lock()
	end := n.end
	n.mu.Unlock()
	if end != nil {
		end()
	}
	n.wg.Wait()
}

// keep saves the window's place when it changed.
func (n *Native) keep() {
	now, seen := viewPlace()
	n.mu.Lock()
	defer n.mu.Unlock()
	if seen {
		now.Told, now.Quiet = n.place.Told, n.place.Quiet
		n.place = now
	}
	if n.place == n.saved {
		return
	}
	if err := n.place.save(n.state); err != nil {
		fmt.Fprintln(os.Stderr, "the window's place cannot be saved:", err)
	}
	n.saved = n.place // also when it failed: once is enough to be told
}

// The toolkit takes the text for a format: no percent sign in it.
const closingText = "Closing the window ends nothing.\n\nAgents, machines and the core go on. Start Glasshouse again and the window is back, with all that happened.\n\nTo end everything choose File, Quit Glasshouse and power machines off.\n\nThis is said once."

// beforeClose answers whether the window stays open.
func (n *Native) beforeClose(ctx context.Context) bool {
	n.mu.Lock()
	if n.asking || n.leaving {
		n.mu.Unlock()
		return true
	}
	tell := !n.place.Told && !n.closing
	n.asking, n.leaving = tell, !tell
	outer := n.outer
	n.mu.Unlock()
	if tell {
		select {
		case <-outer.Done(): // nobody is asked when the system shuts down
		case <-time.After(50 * time.Millisecond):
			_, _ = runtime.MessageDialog(ctx, runtime.MessageDialogOptions{Type: runtime.InfoDialog, Title: "Glasshouse goes on", Message: closingText})
		}
		n.mu.Lock()
		n.place.Told, n.asking, n.leaving = outer.Err() == nil, false, true
		n.mu.Unlock()
	}
	n.keep()
	return false
}

// show brings the window up and opens what a notice told of.
func (n *Native) show(id, token string) {
	presentView(token)
	n.emit(eventShow, id)
}

func (n *Native) emit(name, id string) {
	n.mu.Lock()
	ctx := n.ctx
	n.mu.Unlock()
	if ctx != nil && id != "" {
		runtime.EventsEmit(ctx, name, id)
	}
}

// guarded runs what the page asked for: a fault in it is an error of the call, not
// the end of the window.
func guarded(what string, f func() error) (err error) {
	repairSignals()
	defer func() {
		if v := recover(); v != nil {
			fmt.Fprintf(os.Stderr, "fault in %s: %v\n%s", what, v, debug.Stack())
			err = fmt.Errorf("a fault inside the window (%s)", what)
		}
	}()
	return f()
}

// PickFolder lets the person choose a folder by the system's dialog and returns
// its path; empty when none was chosen.
func (n *Native) PickFolder() (dir string, err error) {
	err = guarded("PickFolder", func() error {
		if !n.pick.TryLock() { // its dialog is open
			return nil
		}
		defer n.pick.Unlock()
		n.mu.Lock()
		ctx := n.ctx
		n.mu.Unlock()
		if ctx == nil {
			return nil
		}
		dir, err = runtime.OpenDirectoryDialog(ctx, runtime.OpenDialogOptions{Title: "Choose a folder or repository"})
		return err
	})
	return dir, err
}

// CloseWindow closes the window without a word.
func (n *Native) CloseWindow() error {
	return guarded("CloseWindow", func() error {
		n.mu.Lock()
		n.closing = true
		ctx := n.ctx
		n.mu.Unlock()
		if ctx != nil {
			runtime.Quit(ctx)
		}
		return nil
	})
}

// Notices tells whether the person is told outside the window of what waits.
func (n *Native) Notices() (on bool, err error) {
	err = guarded("Notices", func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		on = !n.place.Quiet
		return nil
	})
	return on, err
}

// SetNotices turns that on or off.
func (n *Native) SetNotices(on bool) error {
	return guarded("SetNotices", func() error {
		n.mu.Lock()
		n.place.Quiet = !on
		n.mu.Unlock()
		n.notices.Quiet(!on)
		n.keep()
		return nil
	})
}
