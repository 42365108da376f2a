package machine

import (
	"context"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// connect opens the channel, trying until the wait is over, and starts the
// keeper of it. A state that cannot be recorded now closes no channel.
func (u *unit) connect(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for delay := 20 * time.Millisecond; ; delay = min(delay*2, time.Second) {
		g, err := u.dial(ctx)
		if err == nil {
			u.mu.Lock()
			u.cur, u.boot, u.opened = g, g.Hello().BootID, time.Now()
			u.mu.Unlock()
			if !u.f.keeps(func() { u.keep(g) }) {
				u.mu.Lock()
				u.cur = nil
				u.mu.Unlock()
				g.Close()
				return errClosing
			}
			_ = u.setState(u.f.ctx, vm.StateReady, "")
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
	}
}

func (u *unit) dial(ctx context.Context) (guest.Guest, error) {
	mach, err := u.open(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := mach.Dial(ctx)
	if err != nil {
		return nil, err
	}
	g, err := u.f.cfg.Open(ctx, conn, u.f.cfg.Egress(u.project.ID))
	if err != nil {
		conn.Close()
		return nil, err
	}
	return g, nil
}

// A channel that is lost within shortLife of its opening was taken by somebody
// else, or its other end dies again and again: the next one waits, ever longer, so
// that two ends never fight in a tight loop.
const (
	shortLife = 3 * time.Second
	mostPause = 8 * time.Second
)

func pauseAfter(short int) time.Duration {
	if short < 2 { // once is a daemon that was restarted
		return 0
	}
	return min(100*time.Millisecond<<min(short, 10), mostPause)
}

// keep waits for the end of a channel. When the machine still runs it opens a
// new one (guestd was restarted); else it says that the machine is off.
func (u *unit) keep(g guest.Guest) {
	select {
	case <-g.Done():
	case <-u.f.ctx.Done():
		g.Close()
		return
	}
	u.mu.Lock()
	if u.cur != g {
		u.mu.Unlock()
		return
	}
	u.cur = nil
	stopping := u.state == vm.StateStopping
	if time.Since(u.opened) < shortLife {
		u.short++
	} else {
		u.short = 0
	}
	pause := pauseAfter(u.short)
	u.wake()
	u.mu.Unlock()
	if stopping {
		return
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-u.f.ctx.Done():
			return
		}
	}
	if err := u.lock(u.f.ctx); err != nil {
		return
	}
	defer u.unlock()
	u.mu.Lock()
	again := u.cur == nil && u.state == vm.StateReady
	mach := u.mach
	u.mu.Unlock()
	if !again {
		return
	}
	ctx, done := u.work(u.f.ctx, 0)
	defer done()
	for giveUp := time.Now().Add(time.Minute); ; {
		info, err := mach.Info(ctx)
		if err == nil && (info.State == vm.StateOff || info.State == vm.StateAbsent) {
			_ = u.setState(u.f.ctx, vm.StateOff, "the machine ended by itself")
			return
		}
		if cerr := u.connect(ctx, 3*time.Second); cerr == nil || ctx.Err() != nil {
			return // a stop that ended this says the state itself
		}
		if err == nil && info.State == vm.StateTrouble || time.Now().After(giveUp) {
			if info.Problem == "" {
				info.Problem = "the machine runs but no longer answers"
			}
			_ = u.setState(u.f.ctx, vm.StateTrouble, info.Problem)
			return
		}
	}
}
