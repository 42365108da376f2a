package event

func init() {
	reg[TerminalOpened]()
	reg[TerminalClosed]()
}

// Project stream. What is typed in a terminal and what comes of it is in no event.
type (
	// TerminalOpened: a person's terminal in the machine. Argv is what runs in it.
	TerminalOpened struct {
		Terminal string   `json:"terminal_id"`
		Title    string   `json:"title"`
		Argv     []string `json:"argv"`
		Session  string   `json:"for_session,omitempty"` // on whose card its connections ask
	}
	TerminalClosed struct {
		Terminal string       `json:"terminal_id"`
		Title    string       `json:"title"`
		Exit     TerminalExit `json:"exit"`
	}
	// TerminalExit: Unknown means that nobody can say how it ended.
	TerminalExit struct {
		Code    int    `json:"code"` // -1 when ended by a signal or not known
		Signal  string `json:"signal,omitempty"`
		Unknown bool   `json:"unknown,omitempty"`
		Error   string `json:"error,omitempty"`  // it could not be started: why
		Reason  string `json:"reason,omitempty"` // who or what ended it, when it was not the program itself
	}
)

func (*TerminalOpened) EventType() Type { return "terminal.opened" }
func (*TerminalClosed) EventType() Type { return "terminal.closed" }
