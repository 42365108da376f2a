package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"glasshouse/backend/approval"
	"glasshouse/backend/event"
)

// Command lines that are wrong by themselves: no core is asked, the code is 2 and
// the text says what would be right.
func TestWrongLines(t *testing.T) {
	fakeCore(t)
	for _, c := range []struct{ line, says string }{
		{"frob", `no command "frob"`},
		{"projct list", "did you mean project?"},
		{"project frob", `no command "frob"`},
		{"review push", `no command "push"`},
		{"log verfy", "did you mean verify?"},
		{"project show", "it takes PROJECT, and was given 0"},
		{"rule allow shop", "it takes PROJECT HOST[:PORT], and was given 1"},
		{"project list x", `no arguments, and was given ["x"]`},
		{"project create", "--name"},
		{"approval answer ap_x", "--text"},
		{"exec --project shop", "give a command"},
		{"exec ls", "--session or --project"},
		{"exec --project shop --timeout-ms abc -- ls", `invalid argument "abc" for "--timeout-ms" flag`},
		{"exec --project shop --timeout-ms -4 -- ls", "at least 0"},
		{"exec --project shop --env A -- ls", "NAME=VALUE"},
		{"push r_x", "--remote and --ref"},
		{"serve --listen garbage", "127.0.0.1:8080"},
		{"list --nonsense", "nonsense"},
	} {
		var out, errs bytes.Buffer
		e := &env{out: &out, err: &errs, in: strings.NewReader("")}
		code := e.run(context.Background(), strings.Fields(c.line))
		if code != 2 || !strings.Contains(errs.String(), c.says) || !strings.Contains(errs.String(), "--help'") || strings.Contains(errs.String(), "strconv") || out.Len() > 0 {
			t.Errorf("%s: %d %q %q", c.line, code, out.String(), errs.String())
		}
	}
	for _, line := range []string{"", "project", "--help", "exec --help", "--version"} {
		var out, errs bytes.Buffer
		e := &env{out: &out, err: &errs, in: strings.NewReader("")}
		if code := e.run(context.Background(), strings.Fields(line)); code != 0 || out.Len() == 0 || errs.Len() > 0 {
			t.Errorf("%q: %d %q %q", line, code, out.String(), errs.String())
		}
	}
}

func TestAnswerOf(t *testing.T) {
	gate := event.ApprovalRequested{Kind: "egress", Digest: "d", FreeText: true, Choices: []event.Choice{{ID: "once", Label: "Allow once"}, {ID: "deny", Label: "Deny"}}}
	options := event.ApprovalRequested{Kind: "question", Digest: "d", Choices: []event.Choice{{ID: "option-1", Label: "option-2"}, {ID: "option-2", Label: "blue"}}}
	free := event.ApprovalRequested{Kind: "question", Digest: "d", FreeText: true, Choices: []event.Choice{{ID: "reply", Label: "Reply"}}}
	for _, c := range []struct {
		q                        event.ApprovalRequested
		choice, text, pick, with string
	}{
		{gate, "once", "", "once", ""},
		{gate, "allow once", "", "once", ""},
		{gate, "deny", "not now", "deny", "not now"},
		{gate, "yes", "", "yes", ""}, // no answer: the core says what would be one
		{options, "Blue", "", "option-2", ""},
		{options, "option-2", "", "option-2", ""}, // a label never stands for another's word
		{options, "green", "", "green", ""},
		{free, "any words", "", "", "any words"},
		{free, "", "any words", "", "any words"},
	} {
		in := answerOf(approval.Approval{Asked: c.q}, c.choice, c.text)
		if in["choice"] != c.pick || in["text"] != c.with || in["digest"] != "d" {
			t.Errorf("%q %q: %v", c.choice, c.text, in)
		}
	}
}
