package eventlog

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Somebody with an editor for databases changes the file: Verify names the place.
func TestVerifyFindsTampering(t *testing.T) {
	cases := map[string]struct {
		sql string
		at  int64 // 0 = anywhere
		say string
	}{
		"payload":           {"UPDATE event SET data = replace(data, 'five', 'FIVE') WHERE id = 5", 5, "payload was changed"},
		"payload and hash":  {"UPDATE event SET data = '{}', payload_hash = x'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a' WHERE id = 5", 5, "fields were changed"},
		"actor":             {"UPDATE event SET actor = 'agent:x' WHERE id = 5", 5, "fields were changed"},
		"time":              {"UPDATE event SET at = at + 1 WHERE id = 5", 5, "fields were changed"},
		"origin":            {"UPDATE event SET origin = 'guest' WHERE id = 5", 5, "fields were changed"},
		"step":              {"UPDATE event SET step = 'other' WHERE id = 5", 5, "fields were changed"},
		"removed":           {"DELETE FROM event WHERE id = 5", 6, "missing"},
		"first removed":     {"DELETE FROM event WHERE id = 1", 2, "missing"},
		"last removed":      {"DELETE FROM event WHERE id = 9", 9, "end"},
		"all removed":       {"DELETE FROM event", 9, "end"},
		"swapped":           {"UPDATE event SET id = 100, seq = 100 WHERE id = 4; UPDATE event SET id = 4, seq = 4 WHERE id = 5; UPDATE event SET id = 5, seq = 5 WHERE id = 100", 4, "fields were changed"},
		"called redacted":   {"UPDATE event SET data = '{\"role\":\"x\",\"text\":\"y\"}', redacted = 1 WHERE id = 5", 5, "no recorded redaction"},
		"redaction changed": {"UPDATE event SET data = '{\"role\":\"x\",\"text\":\"y\"}' WHERE id = 3", 3, "no recorded redaction"},
		"head":              {"UPDATE head SET id = 8", 0, ""},
		"counter":           {"UPDATE sqlite_sequence SET seq = 2", 0, "counter"},
		"inserted":          {"INSERT INTO event SELECT 10, stream, 10, at, type, origin, actor, project, session, step, data, payload_hash, prev_hash, hash, 0 FROM event WHERE id = 9; UPDATE head SET id = 10", 10, "does not follow"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dir := t.TempDir()
			l := openTest(t, dir)
			for _, s := range strings.Fields("one two three four five six seven eight") {
				_, err := l.Append(ctx, msg("session:a", s))
				must(t, err)
			}
			_, err := l.Redact(ctx, 3, &event.Message{Role: "person", Text: "[gone]"}, "person", "a test")
			must(t, err)
			mustVerify(t, l)
			must(t, l.Close())
			db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, FileName))
			must(t, err)
			_, err = db.Exec(c.sql)
			must(t, err)
			must(t, db.Close())
			l = openTest(t, dir)
			rep, err := l.Verify(ctx)
			must(t, err)
			if len(rep.Problems) == 0 {
				t.Fatal("not found")
			}
			if !slices.ContainsFunc(rep.Problems, func(p Problem) bool {
				return (c.at == 0 || p.ID == c.at) && strings.Contains(p.What, c.say)
			}) {
				t.Fatalf("%+v", rep.Problems)
			}
			// An id that was given is never given again.
			out, err := l.Append(ctx, msg("session:a", "next"))
			must(t, err)
			if out[0].ID < 9 || (out[0].ID == 9 && name != "last removed") && name != "head" {
				t.Fatalf("id %d again", out[0].ID)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	l := openTest(t, dir)
	const secret = "canary-4711-tubular"
	_, err := l.Append(ctx, msg("session:a", "before"), msg("session:a", secret), msg("session:a", strings.Repeat(secret, 900)), msg("session:a", "after"))
	must(t, err)
	sub := l.Subscribe(Filter{}, 0)
	defer sub.Close()
	for _, id := range []int64{2, 3} {
		note, err := l.Redact(ctx, id, &event.Message{Role: "person", Text: "[redacted]"}, "person", "a secret was pasted")
		must(t, err)
		if note.Type != "log.redacted" || note.Stream != event.HostStream {
			t.Fatalf("%+v", note)
		}
	}
	if rep := mustVerify(t, l); rep.Redacted != 2 || rep.Events != 6 {
		t.Fatalf("%+v", rep)
	}
	for range 6 {
		e, err := sub.Next(ctx)
		must(t, err)
		if bytes.Contains(e.Data, []byte(secret)) {
			t.Fatal("a live reader still gets the secret")
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(secret)) {
			t.Errorf("the secret is still in %s", filepath.Base(f))
		}
	}
	// Twice is fine, and the last one counts.
	_, err = l.Redact(ctx, 2, &event.Message{Role: "person", Text: "[gone]"}, "person", "again")
	must(t, err)
	mustVerify(t, l)

	for name, c := range map[string]struct {
		id   int64
		by   event.Payload
		code domain.ErrorCode
	}{
		"nothing there":  {99, &event.Message{}, domain.CodeNotFound},
		"another type":   {1, &event.TurnStarted{}, domain.CodeInvalid},
		"its own record": {5, &event.LogRedacted{}, domain.CodeInvalid},
	} {
		if _, err := l.Redact(ctx, c.id, c.by, "person", "x"); domain.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustVerify(t, l)
}
