package proto

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
)

const maxErrorText = 1000

var errorCodes = []struct {
	err  error
	code codes.Code
}{
	{guest.ErrNoExec, codes.NotFound},
	{guest.ErrNotFound, codes.NotFound},
	{guest.ErrConflict, codes.Aborted},
	{guest.ErrRefused, codes.PermissionDenied},
	{guest.ErrTooLarge, codes.ResourceExhausted},
	{guest.ErrOlder, codes.Unimplemented},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// ToStatus is how an error of ours travels.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, m := range errorCodes {
		if errors.Is(err, m.err) {
			return status.Error(m.code, cut(err.Error()))
		}
	}
	return status.Error(codes.Unknown, cut(err.Error()))
}

// Invalid is a request that a check refused.
func Invalid(err error) error {
	return status.Error(codes.InvalidArgument, cut(err.Error()))
}

func cut(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// FromStatus turns a status the guest answered into an error of the contract.
// notFound is what NotFound means for the call (ErrNoExec or ErrNotFound).
func FromStatus(err error, notFound error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	said := &Said{Text: cut(st.Message())}
	for _, m := range errorCodes {
		if m.code == st.Code() {
			said.kind = m.err
			break
		}
	}
	if st.Code() == codes.NotFound {
		said.kind = notFound
	}
	return said
}

// Said is an error in the guest's own words: bounded, but to be escaped
// wherever it is shown.
type Said struct {
	Text string
	kind error
}

func (s *Said) Error() string {
	if s.kind == nil {
		return s.Text
	}
	if strings.HasPrefix(s.Text, s.kind.Error()) {
		return s.Text
	}
	return s.kind.Error() + ": " + s.Text
}

func (s *Said) Unwrap() error { return s.kind }
