package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

const (
	maxPictures  = 3       // of the conversation are sent, the newest
	maxPicture   = 4 << 20 // bytes of one; servers refuse larger ones
	pictureCost  = 1600    // tokens, at least what servers count for one
	partOverhead = 12      // bytes around each piece
	maxShown     = 128     // calls of one answer; with more a server may take no request any more
	maxName      = 200     // bytes of a tool's name that a model made up, and of a server's id
)

// view is how a conversation is shown to a model.
type view struct {
	textOnly bool
	// cuts in bytes of one result, of one thing that the person or the model said or
	// thought, and of the arguments of a call; 0 = as they are.
	results, words, args int
}

// picture that is sent.
type pictures struct {
	sent map[string][]byte
	// why others are not, by sha256
	not map[string]string
}

// messages puts a conversation into the form that a model is asked with.
func (c *conversation) messages(v view, pics *pictures) []model.Message {
	w := &writer{}
	if c.head != nil {
		text := words["compacted"] + "\n\n" + c.head.Kept
		if c.head.Summary != "" {
			text += "\n\n" + words["own-words"] + "\n" + c.head.Summary
		}
		w.user(text)
	}
	shown := keptPictures(c.entries, v, pics)
	var nudge string // what stands between this answer and another
	for _, e := range c.entries {
		if e.ans == nil {
			w.user(cutIf(e.said, v.words))
			if !e.note {
				nudge = ""
			}
			continue
		}
		if e.ans.stop == model.StopRefused {
			continue // it is no part of what is gone on with
		}
		if nudge != "" || len(w.out) == 0 {
			w.user(or(nudge, words["go-on"]))
		}
		nudge = nudgeFor(e.ans)
		if e.ans.empty() {
			continue
		}
		w.answer(e.ans, v)
		if len(e.ans.calls()) > 0 {
			w.results(e.ans, v, pics, shown)
		}
	}
	for _, e := range c.waiting {
		w.user(cutIf(e.said, v.words))
		if !e.note {
			nudge = ""
		}
	}
	if nudge != "" || len(w.out) == 0 {
		w.user(or(nudge, words["go-on"]))
	}
	return w.out
}

// nudgeFor is what is said after an answer when the model is to go on without a word
// of the person or a result.
func nudgeFor(a *answer) string {
	switch {
	case len(a.calls()) > 0:
		return ""
	case a.empty():
		return words["empty"]
	case a.stop == model.StopLength:
		return words["cut"]
	}
	return words["go-on"]
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func cutIf(s string, n int) string {
	if n <= 0 {
		return s
	}
	return cutMiddle(s, n)
}

// writer makes messages; what the user says in a row becomes one.
type writer struct{ out []model.Message }

func (w *writer) user(text string) {
	p := model.Part{Kind: model.KindText, Text: text}
	if n := len(w.out); n > 0 && w.out[n-1].Role == model.RoleUser {
		w.out[n-1].Parts = append(w.out[n-1].Parts, p)
		return
	}
	w.out = append(w.out, model.Message{Role: model.RoleUser, Parts: []model.Part{p}})
}

func (w *writer) answer(a *answer, v view) {
	m := model.Message{Role: model.RoleAssistant}
	ids := idsOf(a)
	shown := 0
	for _, p := range a.parts {
		out := model.Part{Kind: model.Kind(p.Kind), From: p.From}
		if len(p.Opaque) > 0 {
			out.Opaque = json.RawMessage(p.Opaque)
		}
		switch out.Kind {
		case model.KindText:
			if strings.TrimSpace(p.Text) == "" {
				continue
			}
			out.Text = cutIf(p.Text, v.words)
		case model.KindThought:
			out.Text = cutIf(p.Text, v.words)
		case model.KindCall:
			if shown++; shown > maxShown {
				continue
			}
			args := p.Args
			if v.args > 0 && len(args) > v.args {
				raw, _ := marshal(map[string]string{"cut": cutMiddle(strings.ToValidUTF8(args, "\uFFFD"), v.args)})
				args, out.Opaque = string(raw), nil
			}
			if v.args > 0 && len(out.Opaque) > v.args {
				out.Opaque = nil
			}
			out.Call = &model.Call{ID: ids[p.Key], Tool: short(p.Tool, maxName), Args: args}
		default:
			continue
		}
		// The server's own form is of the whole, and may be what is too large.
		if out.Call == nil && (len(out.Text) < len(p.Text) || v.words > 0 && len(out.Opaque) > v.words) {
			out.Opaque = nil
		}
		m.Parts = append(m.Parts, out)
	}
	w.out = append(w.out, m)
}

// idsOf gives each call of an answer an id that no other of it has: the server's where
// it gave one of a sensible length.
func idsOf(a *answer) map[string]string {
	ids, taken := map[string]string{}, map[string]bool{}
	for _, c := range a.calls() {
		id := c.ID
		if id == "" || len(id) > maxName || taken[id] {
			id = c.Key
		}
		taken[id], ids[c.Key] = true, id
	}
	return ids
}

func (w *writer) results(a *answer, v view, pics *pictures, shown map[*event.ToldResult]int) {
	m := model.Message{Role: model.RoleTool}
	ids := idsOf(a)
	byKey := map[string]*event.ToldResult{}
	for i := range a.results {
		byKey[a.results[i].Key] = &a.results[i]
	}
	calls := a.calls()
	for i, c := range calls[:min(len(calls), maxShown)] {
		r := &model.Result{ID: ids[c.Key], Tool: short(c.Tool, maxName), Text: "Interrupted; no result of this call is kept.", Failed: true}
		if told := byKey[c.Key]; told != nil {
			r.Text, r.Failed = cutIf(or(told.Text, "(nothing)"), v.results), told.Failed
			for i, img := range told.Images {
				switch _, have := pics.sent[img.Sha256]; {
				case v.textOnly:
					r.Text += fmt.Sprintf("\n[picture %s: this model cannot see pictures]", short(img.Sha256, 12))
				case i < len(told.Images)-shown[told]:
					r.Text += fmt.Sprintf("\n[picture %s: no longer shown; take a new one to see how it is now]", short(img.Sha256, 12))
				case !have:
					r.Text += fmt.Sprintf("\n[picture %s: %s]", short(img.Sha256, 12), or(pics.not[img.Sha256], "it cannot be read"))
				default:
					r.Images = append(r.Images, model.Image{Sha256: img.Sha256, Mime: img.Mime, Size: img.Size})
				}
			}
		}
		if more := len(calls) - maxShown; more > 0 && i == maxShown-1 {
			r.Text += fmt.Sprintf("\n[The answer made %s, which are not shown here. None of them ran.]", plural(more, "call more", "calls more"))
		}
		m.Parts = append(m.Parts, model.Part{Kind: model.KindResult, Result: r})
	}
	w.out = append(w.out, m)
}

// keptPictures says how many pictures of each result are sent, from its last one on.
func keptPictures(entries []*entry, v view, _ *pictures) map[*event.ToldResult]int {
	out := map[*event.ToldResult]int{}
	left := maxPictures
	if v.textOnly {
		return out
	}
	for i := len(entries) - 1; i >= 0 && left > 0; i-- {
		a := entries[i].ans
		if a == nil {
			continue
		}
		for j := len(a.results) - 1; j >= 0 && left > 0; j-- {
			n := min(left, len(a.results[j].Images))
			out[&a.results[j]], left = n, left-n
		}
	}
	return out
}

// pictures reads those that will be sent, so that one that is gone is said to be, and
// does not fail the request.
func (t *turn) pictures(v view) *pictures {
	p := &pictures{sent: map[string][]byte{}, not: map[string]string{}}
	if v.textOnly {
		return p
	}
	for r, n := range keptPictures(t.conv.entries, v, nil) {
		for _, img := range r.Images[len(r.Images)-n:] {
			if img.Size > maxPicture {
				p.not[img.Sha256] = "it is too large to be shown; take one of a part of the page"
				continue
			}
			if raw, ok := t.seen[img.Sha256]; ok {
				p.sent[img.Sha256] = raw
				continue
			}
			raw, err := t.room.ReadBlob(img.Sha256, maxPicture)
			if err != nil {
				p.not[img.Sha256] = "its artefact cannot be read"
				continue
			}
			p.sent[img.Sha256] = raw
		}
	}
	t.seen = p.sent
	return p
}

func (p *pictures) bytes(_ context.Context, i model.Image) ([]byte, error) {
	raw, ok := p.sent[i.Sha256]
	if !ok {
		return nil, fmt.Errorf("the picture %s is not part of this request", i.Sha256)
	}
	return raw, nil
}

// sizeOf messages in bytes of text and in pictures.
func sizeOf(ms []model.Message) (size, images int) {
	for _, m := range ms {
		size += partOverhead
		for _, p := range m.Parts {
			size += partOverhead + len(p.Text) + len(p.Opaque)
			if p.Call != nil {
				size += len(p.Call.Tool) + len(p.Call.Args) + len(p.Call.ID)
			}
			if p.Result != nil {
				size += len(p.Result.Text) + len(p.Result.ID)
				images += len(p.Result.Images)
			}
		}
	}
	return size, images
}

func sizeOfAnswer(a model.Answer) int {
	n, _ := sizeOf([]model.Message{{Role: model.RoleAssistant, Parts: a.Parts}})
	return n
}

// sizeOfRest is what stands before the messages.
func sizeOfRest(r *model.Request) int {
	n := len(r.System)
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema) + partOverhead
	}
	return n
}
