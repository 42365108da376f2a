//go:build !linux && !darwin

package desktop

import "errors"

// noBoard: this system has no place for notices that is known here.
type noBoard struct{}

func newBoard(func(show, token string)) board { return noBoard{} }

func (noBoard) Post(Notice) error { return errors.New("notices are not supported on this system") }
func (noBoard) Clear()            {}
