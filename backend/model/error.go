package model

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind says what went wrong, and so whether trying again helps.
type ErrorKind string

const (
	ErrAuth     ErrorKind = "auth"      // the key is missing, wrong or may not use this model
	ErrQuota    ErrorKind = "quota"     // the account has no money or no allowance left
	ErrRate     ErrorKind = "rate"      // too many requests or tokens just now
	ErrBusy     ErrorKind = "busy"      // the server is overloaded
	ErrServer   ErrorKind = "server"    // it failed
	ErrNetwork  ErrorKind = "network"   // not reached, reset, or the stream was cut
	ErrTimeout  ErrorKind = "timeout"   // nothing came for too long
	ErrTooLong  ErrorKind = "too_long"  // more than the model's context holds
	ErrInvalid  ErrorKind = "invalid"   // the server does not take the request
	ErrNotFound ErrorKind = "not_found" // no such model or address
	ErrProtocol ErrorKind = "protocol"  // what came is not the format it should be
)

// Error is how asking a model failed. Message is the server's own text, cut to 2,000
// bytes, with the key taken out.
type Error struct {
	Kind       ErrorKind
	Status     int // of HTTP; 0 = none came
	Message    string
	RetryAfter time.Duration // as the server asked; 0 = it did not say
	RequestID  string
	Attempts   int // made before it was given up, as Retry counts them; 0 = one
	Err        error
}

func (e *Error) Error() string {
	s := string(e.Kind)
	if e.Status != 0 {
		s = fmt.Sprintf("%s (HTTP %d)", s, e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	} else if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Again reports whether the same request may succeed a little later.
func (e *Error) Again() bool {
	switch e.Kind {
	case ErrRate, ErrBusy, ErrServer, ErrNetwork, ErrTimeout, ErrProtocol:
		return true
	}
	return false
}

// KindOf returns the kind of the first Error in err's chain, else "".
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
