package anthropic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

// conversation of whatever may be in a log: of other formats, broken off, edited.
func conversation(r *rand.Rand) (out []model.Message) {
	texts := []string{"", " ", "\n", "hello", "more <text>", "\xff", "x\x00y"}
	ids := []string{"", "0", "call_1", "toolu_1", "a|b", "ä", "call_0"}
	names := []string{"exec", "plan", "browser_click", "made up", "", "a.b"}
	args := []string{"", "{}", `{"a":1}`, "[]", "null", "{", `"x"`, `{"a":1} x`, "\xff"}
	pick := func(all []string) string { return all[r.IntN(len(all))] }
	images := func() (out []model.Image) {
		for range r.IntN(3) {
			kind := pick([]string{"png", "jpeg", "gif", "webp", "bmp", "html", "gone"})
			out = append(out, picture(kind, "image/png"))
		}
		return out
	}
	for range r.IntN(12) {
		switch r.IntN(4) {
		case 0:
			m := model.Message{Role: model.RoleUser}
			for range r.IntN(3) {
				m.Parts = append(m.Parts, text(pick(texts)))
				for _, i := range images() {
					m.Parts = append(m.Parts, model.Part{Kind: model.KindImage, Image: &i})
				}
			}
			out = append(out, m)
		case 1, 2:
			m := model.Message{Role: model.RoleAssistant}
			answers := model.Message{Role: model.RoleTool}
			for range r.IntN(4) {
				switch r.IntN(3) {
				case 0:
					m.Parts = append(m.Parts, text(pick(texts)))
				case 1:
					m.Parts = append(m.Parts, thought("openai-responses:x", `{"type":"thinking","thinking":"t","signature":"s"}`))
				case 2:
					p := calls(pick(ids), pick(names), pick(args))
					m.Parts = append(m.Parts, p)
					if r.IntN(8) > 0 {
						answers.Parts = append(answers.Parts, model.Part{Kind: model.KindResult, Result: &model.Result{
							ID: p.Call.ID, Tool: p.Call.Tool, Text: pick(texts), Failed: r.IntN(2) == 0, Images: images()}})
					}
				}
			}
			out = append(out, m)
			if r.IntN(8) > 0 {
				out = append(out, answers)
			}
		case 3:
			out = append(out, results(model.Result{ID: pick(ids), Tool: pick(names), Text: pick(texts)}))
		}
	}
	return out
}

// Whatever a conversation holds, a strict server takes it.
func TestStrictServerTakesAnyConversation(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := model.Config{Model: []string{"claude-opus-5", "claude-haiku-4-5", "other"}[r.IntN(3)], Effort: []string{"", "low", "high"}[r.IntN(3)], TextOnly: r.IntN(4) == 0}
		q := model.Request{System: []string{"", "S"}[r.IntN(2)], Tools: tools, Messages: conversation(r), Bytes: pictureBytes, Quiet: r.IntN(3) == 0}
		s := modeltest.Text(t, "summary: fine\nanswers: [{say: fine}]")
		cfg.BaseURL = s.URL()
		a, err := open(cfg, "").Answer(t.Context(), q, none)
		if err != nil || len(a.Parts) != 1 || a.Parts[0].Text != "fine" {
			body := ""
			if all := s.Requests(); len(all) > 0 {
				body = string(all[0].Body)
			}
			t.Fatalf("seed %d: %+v, %v, %v\n%s", seed, a, err, s.Faults(), body)
		}
		s.Close()
	}
}

// A whole turn with thinking in both forms: the server knows its own thoughts again.
func TestTurnWithThoughtsAgainstAStrictServer(t *testing.T) {
	for _, name := range []string{"claude-haiku-4-5", "claude-opus-5"} {
		s := modeltest.Text(t, `
answers:
  - {think: "First <this> & that.", say: I look., calls: [{tool: exec, args: {argv: [ls]}}, {tool: plan, args: {}}]}
  - {calls: [{tool: exec, args: {argv: [cat, a]}}]}
  - {fail: {kind: busy}}
  - {think: So., say: Done.}
`, modeltest.Options{Key: testKey})
		m := &model.Retry{Client: open(model.Config{Model: name, Effort: "low", BaseURL: s.URL()}, testKey), First: 1, Most: 1}
		q := model.Request{System: "S", Tools: tools, Messages: []model.Message{user("go")}}
		var a model.Answer
		for i := range 3 {
			var err error
			if a, err = m.Answer(t.Context(), q, none); err != nil {
				t.Fatalf("%s, answer %d: %v, %v", name, i, err, s.Faults())
			}
			if i != 1 && (a.Parts[0].Kind != model.KindThought || a.Parts[0].From != "anthropic:"+name) {
				t.Errorf("%s, answer %d: %+v", name, i, a.Parts)
			}
			q.Messages = append(q.Messages, model.Message{Role: model.RoleAssistant, Parts: a.Parts})
			told := model.Message{Role: model.RoleTool}
			for j, c := range a.Calls() {
				told.Parts = append(told.Parts, model.Part{Kind: model.KindResult, Result: &model.Result{ID: c.ID, Tool: c.Tool, Text: fmt.Sprintf("result %d.%d", i, j)}})
			}
			if len(told.Parts) > 0 {
				q.Messages = append(q.Messages, told)
			}
		}
		if a.Stop != model.StopEnd || a.Attempts != 2 || len(s.Faults()) != 0 {
			t.Errorf("%s: %+v, %v", name, a, s.Faults())
		}
		all := s.Requests()
		if len(all) != 4 || all[3].Asked == nil || !bytes.Contains(all[3].Body, []byte(`"thinking":{`)) {
			t.Errorf("%s: %d requests, the last is %s", name, len(all), all[len(all)-1].Body)
		}
		// What one request put into the cache, the next one found.
		if a.Usage.CacheRead == 0 {
			t.Errorf("%s: nothing was found in the cache: %+v", name, a.Usage)
		}
	}
}
