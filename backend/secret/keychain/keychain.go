// Package keychain keeps secrets in the computer's own keychain: the Secret Service of
// a Linux desktop, or the keychain of macOS.
package keychain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/secret"
)

// usualWait bounds a call: a locked keychain asks the person, who may be away.
const usualWait = 60 * time.Second

// errNone is what a ring answers that has nothing for an account.
var errNone = errors.New("not found")

// ring is the keychain itself. Its calls may take as long as they like.
type ring interface {
	get(ctx context.Context, service, account string) (string, error)
	set(ctx context.Context, service, account, value string) error
	remove(ctx context.Context, service, account string) error
	// reachable says why the keychain cannot be asked at all, without asking it.
	reachable() error
	// letGo makes a call end that nobody waits for, where that is possible.
	letGo()
}

// Keychain is the computer's keychain. One call at a time is made on it: one that
// hangs is not joined by others.
type Keychain struct {
	service string
	ring    ring
	wait    time.Duration
	slot    chan struct{}
}

var _ secret.Store = (*Keychain)(nil)

// New is the keychain's part of one program. It asks nothing yet.
func New(service string) *Keychain { return newKeychain(service, systemRing()) }

func newKeychain(service string, r ring) *Keychain {
	return &Keychain{service: service, ring: r, wait: usualWait, slot: make(chan struct{}, 1)}
}

func (k *Keychain) Name() string { return "the keychain" }

func (k *Keychain) Get(ctx context.Context, account string) (string, error) {
	var v string
	err := k.do(ctx, account, func(ctx context.Context) (err error) {
		v, err = k.ring.get(ctx, k.service, account)
		return err
	})
	if err != nil {
		return "", err // v may still be written to
	}
	return v, nil
}

func (k *Keychain) Set(ctx context.Context, account, value string) error {
	return k.do(ctx, account, func(ctx context.Context) error {
		if err := k.ring.set(ctx, k.service, account, value); err != nil {
			return err
		}
		// A keychain whose question was answered with no says that all is well.
		if got, err := k.ring.get(ctx, k.service, account); err != nil || got != value {
			return errors.New("it did not keep what it was given")
		}
		return nil
	})
}

func (k *Keychain) Delete(ctx context.Context, account string) error {
	return k.do(ctx, account, func(ctx context.Context) error { return k.ring.remove(ctx, k.service, account) })
}

func unavailable(what string, err error) error {
	return domain.E(domain.CodeUnavailable, what, "unlock it and try again, or put the key into an environment variable of the core and name that as key_env", err)
}

// do makes one call on the keychain, bounded. What still runs at its end goes on
// alone, holding the place of the next call until it ends.
func (k *Keychain) do(ctx context.Context, account string, f func(ctx context.Context) error) error {
	if err := k.ring.reachable(); err != nil {
		return domain.E(domain.CodeUnavailable, "this computer's keychain cannot be reached", "put the key into an environment variable of the core and name that as key_env", err)
	}
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	select {
	case k.slot <- struct{}{}: // a free place is taken, also when the time is just over
	default:
		select {
		case k.slot <- struct{}{}:
		case <-ctx.Done():
			cancel()
			return unavailable("the keychain still waits for an answer to an earlier question", ctx.Err())
		}
	}
	done := make(chan error, 1)
	left := make(chan struct{}) // closed when nobody makes the call end any more
	go func() {                 // ends with the keychain's answer; at most one there is
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Errorf("it went away: %v", v)
			}
			cancel()
			<-left // letting go of this call must not end the next one
			<-k.slot
		}()
		done <- f(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // the call's own end ended ctx, after its answer
		default:
			go func() { // it may itself wait for what hangs
				defer close(left)
				k.ring.letGo()
			}()
			return unavailable("the keychain did not answer in time", context.Cause(ctx))
		}
	}
	close(left)
	if errors.Is(err, errNone) {
		return domain.E(domain.CodeNotFound, fmt.Sprintf("the keychain holds nothing for %q", account), "", nil)
	}
	if err != nil {
		return unavailable("the keychain refused", err)
	}
	return nil
}
