package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// inline is how many bytes of JSON of an answer or its results stand in an event; what
// is larger goes into an artefact.
const inline = 40 << 10

// query is one question to a model on its way to a recorded answer.
type query struct {
	client  model.Client
	cfg     model.Config
	request *model.Request
	purpose string
	// shortened: it does not hold the conversation as it is.
	shortened bool
	tries     int // most attempts; 0 = the usual

	id   string // of the answer
	text string
}

// query asks and records the answer before anything follows from it. Of one that failed
// or was stopped there is left what it had begun to say, and the attempts that were
// told of.
func (t *turn) query(ctx context.Context, q *query) error {
	q.id = domain.NewID("an")
	saw := t.conv.last
	begun := t.l.cfg.Now()
	var first int64 = -1
	d := newDeltas(t.room.Publish, t.room.Turn(), q.id)
	retry := t.l.cfg.Retry
	retry.Client = &attempts{Client: q.client, t: t, cfg: q.cfg}
	if q.tries > 0 {
		retry.Attempts = q.tries
	}
	got, attempt, keptOf := 0, 1, 0 // bytes of this attempt; its number, and that of the one whose text is kept
	var gone model.Usage            // what attempts took that broke off
	t.lost = lost{}
	defer func() { t.lost = lost{} }()
	var part strings.Builder // the text of this attempt
	kept := ""               // and of the newest that broke off in its middle
	broke := func() {
		if first < 0 {
			return
		}
		gone = gone.Plus(model.Usage{Input: int64(t.whole(q.request)), Output: int64(tokens(got))})
		t.lost = lost{gone.Context(), q.cfg.Price.Cost(gone)}
		kept, keptOf = part.String(), attempt
		first, got = -1, 0
		part.Reset()
	}
	retry.Notify = func(f model.Failed) {
		d.again()
		broke()
		attempt = f.Attempt + 1
		// That it is not recorded is no reason to give up the answer.
		_ = t.room.Record(ctx, &event.ModelRetried{Turn: t.room.Turn(), Answer: q.id, Attempt: f.Attempt, Kind: string(f.Err.Kind), Status: f.Err.Status,
			Reason: short(clean(reason(f.Err)), 2000), WaitMS: f.Wait.Milliseconds()})
	}
	a, err := retry.Answer(ctx, *q.request, func(p model.Delta) {
		if first < 0 {
			first = t.l.cfg.Now().Sub(begun).Milliseconds()
		}
		got += len(p.Text) + len(p.Tool)
		if p.Kind == model.KindText {
			part.WriteString(p.Text)
		}
		if q.purpose == "" {
			d.add(p)
		}
	})
	if err != nil {
		d.cancel()
		broke()
		if gone.Context() > 0 {
			t.brokeOff(ctx, q, kept, keptOf, gone)
		}
		return err
	}
	d.end()
	// It came and it cost: it is recorded also when the turn is being stopped.
	ctx = context.WithoutCancel(ctx)
	took := t.l.cfg.Now().Sub(begun).Milliseconds()
	used := a.Usage
	if used.Context() == 0 {
		// A server that counts nothing: our guess, so that limits hold all the same.
		used = model.Usage{Input: int64(t.whole(q.request)), Output: int64(tokens(sizeOfAnswer(a)))}
	}
	e := &event.ModelAnswered{Turn: t.room.Turn(), Answer: q.id, Number: t.conv.answers + 1, Saw: saw, Model: q.cfg.Name, Served: short(line(a.Served, 200), 200),
		Purpose: q.purpose, Parts: parts(a, q.purpose), Stop: string(a.Stop), Usage: event.ModelUsage(a.Usage), CostNanos: q.cfg.Price.Cost(used.Plus(gone)), Priced: q.cfg.Price != nil, Lost: gone.Context(),
		Context: used.Context(), Shortened: q.shortened, Size: int64(q.cfg.ContextSize()), Attempts: max(1, a.Attempts), FirstMS: max(0, first), TookMS: took}
	for _, p := range e.Parts {
		if p.Kind == string(model.KindText) {
			q.text += p.Text
		}
	}
	raw, err := marshal(e.Parts)
	if err != nil {
		return err
	}
	if len(raw) > inline {
		b, err := t.room.PutBlob(ctx, raw, "application/json", "answer.json")
		if err != nil {
			return err
		}
		e.PartsBlob, e.Parts = &b, cutParts(e.Parts)
	}
	return t.room.Record(ctx, e)
}

// brokeOff records an answer of which no more will come: what the person saw of it is
// kept, and what its attempts cost, by our guess, counts. The model is not shown it.
func (t *turn) brokeOff(ctx context.Context, q *query, text string, attempt int, lost model.Usage) {
	e := &event.ModelAnswered{Turn: t.room.Turn(), Answer: q.id, Number: t.conv.answers + 1, Model: q.cfg.Name, Purpose: event.PurposeBroken, Stop: event.PurposeBroken,
		Usage: event.ModelUsage(lost), CostNanos: q.cfg.Price.Cost(lost), Priced: q.cfg.Price != nil, Size: int64(q.cfg.ContextSize()), Attempts: attempt}
	if text = strings.ToValidUTF8(text, "\uFFFD"); text != "" && q.purpose == "" {
		text = short(text, inline/2)
		for raw, err := marshal(text); err == nil && len(raw) > inline; raw, err = marshal(text) {
			text = short(text, len(text)/2) // what the log writes in several letters for one
		}
		e.Parts = []event.ModelPart{{Kind: string(model.KindText), Text: text}}
	}
	// The turn ends as it does, whether this is recorded or not.
	_ = t.room.Record(context.WithoutCancel(ctx), e)
}

func reason(e *model.Error) string {
	if e.Message != "" {
		return e.Message
	}
	return e.Error()
}

// parts of an answer as they are recorded; each call gets its key here.
func parts(a model.Answer, purpose string) (out []event.ModelPart) {
	for _, p := range a.Parts {
		e := event.ModelPart{Kind: string(p.Kind), Text: strings.ToValidUTF8(p.Text, "\uFFFD"), Opaque: []byte(p.Opaque), From: p.From}
		switch p.Kind {
		case model.KindText, model.KindThought:
		case model.KindCall:
			if purpose != "" || p.Call == nil {
				continue // it was told that none may be made
			}
			e.Key, e.ID = domain.NewID("c"), strings.ToValidUTF8(p.Call.ID, "\uFFFD")
			e.Tool, e.Args = strings.ToValidUTF8(p.Call.Tool, "\uFFFD"), strings.ToValidUTF8(p.Call.Args, "\uFFFD")
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// cutParts is what stands in the event beside the artefact with all of it: enough to
// see what it was, and to keep a conversation whole should the artefact be lost.
func cutParts(ps []event.ModelPart) (out []event.ModelPart) {
	room := inline * 3 / 4
	for _, p := range ps {
		p.Text, p.Args, p.Tool, p.ID, p.Opaque = short(p.Text, 400), short(p.Args, 400), short(p.Tool, 80), short(p.ID, 200), nil
		raw, err := json.Marshal(p)
		if err != nil {
			continue
		}
		if room -= len(raw); room < 0 {
			break
		}
		out = append(out, p)
	}
	return out
}

// refusedAnswer words an answer that declines.
func refusedAnswer(a *answer) error {
	var b strings.Builder
	for _, p := range a.parts {
		if p.Kind == string(model.KindText) {
			b.WriteString(p.Text)
		}
	}
	said := strings.TrimSpace(clean(b.String()))
	what := fmt.Sprintf("The model %s declined to answer", a.model)
	if said != "" {
		what += ": " + short(said, 2000)
	}
	return domain.E(domain.CodeDenied, what, "say it in another way, or choose another model", nil)
}
