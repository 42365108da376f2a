//go:build !darwin

package keychain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
	"github.com/zalando/go-keyring"
)

func systemRing() ring { return &secretService{runtime: fmt.Sprintf("/run/user/%d", os.Getuid())} }

// secretService is the keychain of a desktop session, over its message bus.
type secretService struct{ runtime string }

// reachable keeps the library from starting a message bus: where no session has one
// there is no keychain either, and what runs on this computer is not the library's choice.
func (s *secretService) reachable() error {
	addr := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	if addr == "" || addr == "autolaunch:" {
		for _, name := range []string{"bus", "dbus-session"} {
			if b, err := os.Stat(s.runtime + "/" + name); err == nil && (name == "bus" || b.Size() > 0) {
				return nil
			}
		}
		return errors.New("there is no desktop session with a message bus here")
	}
	for a := range strings.SplitSeq(addr, ";") {
		if !strings.HasPrefix(a, "unix:") && !strings.HasPrefix(a, "tcp:") {
			return errors.New("DBUS_SESSION_BUS_ADDRESS is no address of a message bus that runs")
		}
	}
	return nil
}

func (s *secretService) letGo() {
	// A call that waits on the bus ends with its connection; the next call makes another.
	if c, err := dbus.SessionBus(); err == nil {
		_ = c.Close()
	}
}

func (s *secretService) get(_ context.Context, service, account string) (string, error) {
	v, err := keyring.Get(service, account)
	return v, plain(err)
}

func (s *secretService) set(_ context.Context, service, account, value string) error {
	return plain(keyring.Set(service, account, value))
}

func (s *secretService) remove(_ context.Context, service, account string) error {
	return plain(keyring.Delete(service, account))
}

func plain(err error) error {
	var de dbus.Error
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return errNone
	case errors.Is(err, keyring.ErrSetDataTooBig):
		return errors.New("that is too long for it")
	case errors.As(err, &de) && (de.Name == "org.freedesktop.DBus.Error.ServiceUnknown" || strings.HasPrefix(de.Name, "org.freedesktop.DBus.Error.Spawn")):
		return errors.New("no keychain runs in this session (such as GNOME Keyring or KWallet)")
	}
	return err
}
