package e2e

import (
	"errors"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

const commandScript = `
delay_ms: 3
chunk: 4
answers:
  - say: First I look.
    calls: [{tool: exec, args: {lang: bash, code: "echo once >>/home/agent/effects; until test -e /home/agent/killed; do sleep 0.1; done; echo looked", timeout_ms: 900000}}]
  - expect: {has: [looked]}
    say: That was all of it.
  - say: There is no more.
`

// TestModelCommand: a command that shows a turn starts the core again when it is killed
// below it, shows each text once, and ends with what became of the turn.
func TestModelCommand(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := newModelWorld(t, kind, model.FormatChat, script(t, commandScript), "")
		w.p = w.Project("")
		type ran struct {
			out string
			err error
		}
		done := make(chan ran, 1)
		go func() {
			out, err := w.CLI("run", "--project", string(w.p.ID), "--limit", "1", "--check", "test $(wc -l </home/agent/effects) = 1", "look\naround")
			done <- ran{out, err}
		}()
		ses := ""
		w.Until("the step's start", func() bool {
			for _, e := range w.Log(url.Values{}) {
				if e.Type == "step.started" {
					ses = string(e.SessionID)
				}
			}
			return ses != ""
		})
		// That a step is to start is recorded before it does.
		other := w.Session(w.p)
		w.Until("its effect", func() bool { return w.Bash(other, "test -s /home/agent/effects").Outcome == domain.OutcomeOK })
		w.KillCore()
		w.Until("the core that the command starts", func() bool {
			select {
			case r := <-done:
				t.Fatalf("the command ended: %v\n%s", r.err, r.out)
			default:
			}
			return w.Try("GET", "/v1/info", nil, nil) == nil
		})
		if a := w.Bash(other, "touch /home/agent/killed"); a.Outcome != domain.OutcomeOK {
			t.Errorf("%+v", a)
		}
		r := <-done
		if r.err != nil {
			t.Fatalf("%v\n%s", r.err, r.out)
		}
		for _, one := range []string{"turn by person: look\n", "  | First I look.\n", "the core died; it is started again\n", "turn goes on: the core was started again\n",
			"  | That was all of it.\n", "─── turn ok\n", "2 answers, ", "glasshouse review open " + string(w.p.ID)} {
			if strings.Count(r.out, one) != 1 {
				t.Errorf("%q is there %d times:\n%s", one, strings.Count(r.out, one), r.out)
			}
		}
		if n := len(payloads[*event.TurnStarted](w.World, ses)); n != 1 {
			t.Errorf("%d turns", n)
		}
		// More in the same conversation, stopped by a limit that is reached already.
		out, err := w.CLI("run", "--session", ses, "--limit-tokens", "1", "more")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("%v\n%s", err, out)
		}
		out, err = w.CLI("session", "watch", ses)
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "turn stopped") || strings.Contains(out, "First I look") {
			t.Errorf("%v\n%s", err, out)
		}
		out, err = w.CLI("session", "set", ses, "--limit-tokens", "0")
		if err != nil || !strings.Contains(out, "tokens none") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err = w.CLI("run", "--session", ses, "--go-on"); err != nil || !strings.Contains(out, "There is no more.") {
			t.Errorf("%v\n%s", err, out)
		}
		if f := w.srv.Faults(); len(f) > 0 {
			t.Errorf("the server did not get what it should: %q", f)
		}
	})
}
