package desktop

import (
	"context"
	"time"

	"glasshouse/vm/proc"
)

// scriptBoard posts notices through the system's script runner. Unproved: no test
// has seen it. A click brings nothing up there, for such notices belong to the runner.
type scriptBoard struct{ runner proc.Runner }

func newBoard(func(show, token string)) board { return &scriptBoard{} }

// The texts are arguments of the script, never part of it.
const noticeScript = `on run argv
display notification (item 2 of argv) with title (item 1 of argv)
end run`

func (b *scriptBoard) Post(n Notice) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := b.runner.Run(ctx, proc.Cmd{Role: "notice", Path: "/usr/bin/osascript", Args: []string{"-e", noticeScript, n.Title, n.Body}, Env: proc.MinimalEnv()})
	return err
}

func (b *scriptBoard) Clear() {}
