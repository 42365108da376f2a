package core

import (
	"strings"
	"testing"

	"glasshouse/backend/secret"
)

// A key that cannot be told from other text would stand in the log in plain: it is
// neither kept nor used, but for a server on this very machine.
func TestKeysThatCannotBeHidden(t *testing.T) {
	p := paths(t)
	store := &secret.Memory{}
	c, call, _ := modelCore(t, p, store)
	v := put(t, call, chat("far", "https://192.0.2.1/v1", "GLASSHOUSE_TEST_KEY"))
	put(t, call, chat("near", "http://127.0.0.1:9/v1", "GLASSHOUSE_TEST_KEY"))
	if x := row(v, "far"); x.Key != "missing" {
		t.Errorf("%+v", x)
	}
	for _, weak := range []string{"abc123", "x", "hunterhunter"} {
		t.Setenv("GLASSHOUSE_TEST_KEY", weak)
		if _, _, err := c.models.Open(t.Context(), "far"); err == nil || strings.Contains(err.Error(), weak) && len(weak) > 1 || !strings.Contains(err.Error(), "shorter than 8 characters") {
			t.Errorf("%q, far: %v", weak, err)
		}
		if _, _, err := c.models.Open(t.Context(), "near"); err != nil {
			t.Errorf("%q, near: %v", weak, err)
		}
		if code, _ := call("GET", "/v1/models", "", &v); code != 200 || row(v, "far").Key != "missing" || !strings.Contains(row(v, "far").Problem, "kept out of the log") || row(v, "near").Problem != "" {
			t.Errorf("%q: %d %+v", weak, code, v)
		}
		if code, body := call("PUT", "/v1/models/far/key", `{"key":"`+weak+`"}`, nil); code != 422 || !strings.Contains(body, "/key") || len(weak) > 1 && strings.Contains(body, weak) {
			t.Errorf("%q: %d %s", weak, code, body)
		}
		if _, err := store.Get(t.Context(), "model:far"); err == nil {
			t.Errorf("%q was kept", weak)
		}
		// One that came into the keychain by other ways is not used either.
		if err := store.Set(t.Context(), "model:far", weak); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.models.Open(t.Context(), "far"); err == nil || !strings.Contains(err.Error(), "shorter than 8 characters") {
			t.Errorf("%q, of the keychain: %v", weak, err)
		}
		if err := store.Delete(t.Context(), "model:far"); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GLASSHOUSE_TEST_KEY", canary)
	if _, _, err := c.models.Open(t.Context(), "far"); err != nil {
		t.Error(err)
	}
	if code, body := call("PUT", "/v1/models/near/key", `{"key":"hunterhunter"}`, nil); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}
