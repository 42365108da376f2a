//go:build !unix || freebsd || dragonfly

package packcheck

import "errors"

func confine(Limits) error {
	return errors.New("this system has no process limits that Glasshouse knows how to set")
}
