package keychain

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// security is the keychain of macOS by its own command.
type security struct {
	// run starts it and returns what it printed and its exit code.
	run func(ctx context.Context, stdin string, args ...string) (string, int, error)
}

// encoded is how values are marked that are kept as base64, for the command prints
// anything else in a form of its own. Others write it so too.
const encoded = "go-keyring-base64:"

// notThere is the command's exit code for an item that is not there.
const notThere = 44

func (s *security) reachable() error { return nil }
func (s *security) letGo()           {} // the command ends with its context

func (s *security) get(ctx context.Context, service, account string) (string, error) {
	out, code, err := s.run(ctx, "", "find-generic-password", "-s", service, "-a", account, "-w")
	if code == notThere {
		return "", errNone
	}
	if err != nil {
		return "", fmt.Errorf("it did not hand the key over (code %d)", code)
	}
	v := strings.TrimRight(out, "\r\n")
	if b, ok := strings.CutPrefix(v, encoded); ok {
		raw, err := base64.StdEncoding.DecodeString(b)
		if err != nil {
			return "", errors.New("what it holds for this account was not written by us")
		}
		return string(raw), nil
	}
	return v, nil
}

// set hands the value over on the command's input: arguments can be seen by others.
func (s *security) set(ctx context.Context, service, account, value string) error {
	line := fmt.Sprintf("add-generic-password -U -s %s -a %s -w %s%s\n", quoted(service), quoted(account), encoded, base64.StdEncoding.EncodeToString([]byte(value)))
	if len(line) > 4096 {
		return errors.New("that is too long for it")
	}
	if _, code, err := s.run(ctx, line, "-i"); err != nil {
		return fmt.Errorf("it did not take the key (code %d)", code)
	}
	return nil
}

func (s *security) remove(ctx context.Context, service, account string) error {
	_, code, err := s.run(ctx, "", "delete-generic-password", "-s", service, "-a", account)
	if code == notThere {
		return errNone
	}
	if err != nil {
		return fmt.Errorf("it did not forget the key (code %d)", code)
	}
	return nil
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" }
