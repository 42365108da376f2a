package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRecovered(t *testing.T) {
	srv := httptest.NewServer(recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fault" {
			panic("a fault")
		}
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/fault")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 500 {
		t.Errorf("a fault answers %d", resp.StatusCode)
	}
	if resp, err = srv.Client().Get(srv.URL + "/cut"); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("an answer that was given up looks whole: %q", b)
	}
}
