package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/machine"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// A file in pieces is text in every piece, and nothing of it is lost.
func TestPiecesOfTextStayText(t *testing.T) {
	ctx := context.Background()
	g := vmtest.NewWorld().Open()
	want := strings.Repeat("a€😀é", 50)
	if _, err := g.Files().Write(ctx, "f", []byte(want), guest.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for limit := int64(4); limit < 40; limit++ {
		got, pieces := "", 0
		for at, more := int64(0), true; more; pieces++ {
			c, err := readFile(ctx, g, "f", at, limit)
			if err != nil || c.Base64 != "" || c.Length == 0 || c.Length != int64(len(c.Text)) {
				t.Fatalf("limit %d at %d: %+v %v", limit, at, c, err)
			}
			got, at, more = got+c.Text, c.Offset+c.Length, c.More
		}
		if got != want {
			t.Fatalf("limit %d: %q", limit, got)
		}
	}
	if _, err := g.Files().Write(ctx, "b", []byte("\xff\xfe\x80\x80\x80\x80"), guest.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := readFile(ctx, g, "b", 0, 5)
	if raw, _ := base64.StdEncoding.DecodeString(c.Base64); err != nil || string(raw) != "\xff\xfe\x80\x80\x80" || c.Length != 5 || !c.More {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := readFile(ctx, g, "none", 0, 5); !isCode(err, domain.CodeNotFound) {
		t.Errorf("%v", err)
	}
}

func isCode(err error, code domain.ErrorCode) bool {
	var e *domain.Error
	return errors.As(err, &e) && e.Code == code && e.Hint != ""
}

// To look at files is no reason to boot a machine.
func TestLookingStartsNothing(t *testing.T) {
	s := &server{Services{Fleet: machine.New(machine.Config{})}}
	if _, err := s.running(context.Background(), domain.Project{ID: "p", Name: "shop"}, false); !isCode(err, domain.CodeUnavailable) {
		t.Errorf("%v", err)
	}
}
