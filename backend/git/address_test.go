package git_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/vm/proc"
)

func TestAddresses(t *testing.T) {
	for s, want := range map[string]bool{
		"/home/a/b": false, "some/where": false, "": false, "https://example.com/a": true, "git@example.com:a/b.git": true, "example.com:a": true,
		"ext::sh -c x": true, "file:///a": true, "/odd:name@x/a": false,
	} {
		if got := git.IsAddress(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
	const secret = "hunter2-token"
	for _, s := range []string{"https://example.com/a/b.git", "ssh://git@example.com/a", "git@example.com:a/b.git", "example.com:a", "file:///a/b", "http://127.0.0.1:9/x"} {
		if err := git.CheckAddress(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"https://ann:" + secret + "@example.com/a", "https://" + secret + "@example.com/a", "ssh://ann:" + secret + "@example.com/a", "ann:" + secret + "@example.com:a",
		"https://example.com/a?access_token=" + secret, "https://example.com/a?x=" + secret, "https://example.com/a#" + secret, "http://ann:" + secret + "@127.0.0.1/x",
		"ext::sh -c " + secret, "fd::" + secret, "-upload-pack=" + secret, "--upload-pack=" + secret + "://x", "ssh://-oProxyCommand=" + secret + "/x", "-oProxyCommand=" + secret + ":x",
		"http://example.com/" + secret, "git://example.com/" + secret, "ftp://example.com/" + secret, "file://example.com/" + secret, "https:///" + secret, "https://exa\nmple.com/" + secret, "https://%zz@x/" + secret,
		"ssh://ann@-oProxyCommand=x/" + secret,
	} {
		err := git.CheckAddress(s)
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer != "/source" || e.Hint == "" {
			t.Errorf("%q was not refused: %v", s, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the error repeats what may be a secret: %v", s, err)
		}
	}
	for s, want := range map[string]string{"https://example.com/a/shop.git": "shop", "git@example.com:shop.git/": "shop", "host:shop": "shop", "file:///x/shop": "shop"} {
		if got := git.AddressName(s); got != want {
			t.Errorf("%q is called %q", s, got)
		}
	}
}

// remote is a bare repository whose HEAD names "trunk", with a second branch.
func remoteRepo(t *testing.T) (bare *gittest.Repo, trunk, side string) {
	t.Helper()
	src := gittest.Init(t)
	src.Write("a.txt", "one\n")
	src.Write("sub/b.txt", "two\n")
	trunk = src.Commit("one")
	bare = gittest.InitBare(t)
	src.Git("push", "-q", bare.Dir, "main:trunk")
	src.Write("c.txt", "three\n")
	side = src.Commit("two")
	src.Git("push", "-q", bare.Dir, "main:side")
	bare.Git("symbolic-ref", "HEAD", "refs/heads/trunk")
	return bare, trunk, side
}

// httpRemote serves a folder of repositories as a git host does.
func httpRemote(t *testing.T, root string) string {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("no %s: fetching over http is not tested", backend)
	}
	srv := httptest.NewServer(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}})
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestImportOfAnAddress(t *testing.T) {
	bare, trunk, side := remoteRepo(t)
	addresses := map[string]string{"file": "file://" + bare.Dir}
	addresses["http"] = httpRemote(t, filepath.Dir(bare.Dir)) + "/" + filepath.Base(bare.Dir)
	before := fingerprint(t, bare.Dir)
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			m, run := openMirrorEnv(t, nil)
			var said []git.FetchProgress
			res, err := m.ImportSource(t.Context(), address, git.ImportOptions{Progress: func(p git.FetchProgress) { said = append(said, p) }})
			if err != nil {
				t.Fatal(err)
			}
			if res.Kind != "remote" || res.Branch != "trunk" || res.Commit != trunk || res.Files != 2 {
				t.Errorf("%+v", res)
			}
			var texts []string
			counted := false
			for _, p := range said {
				texts = append(texts, p.Text)
				counted = counted || p.Total > 0 && p.Done <= p.Total
			}
			if all := strings.Join(texts, "; "); !counted || !strings.Contains(all, "asking the remote") || !strings.Contains(all, "checking what came") {
				t.Errorf("progress: %+v", said)
			}
			if res, err = m.ImportSource(t.Context(), address, git.ImportOptions{Branch: "side"}); err != nil || res.Commit != side || res.Branch != "side" || res.Files != 3 {
				t.Errorf("%+v: %v", res, err)
			}
			var e *domain.Error
			if _, err = m.ImportSource(t.Context(), address, git.ImportOptions{Branch: "nowhere"}); !errors.As(err, &e) || e.Code != domain.CodeNotFound || e.Pointer != "/branch" {
				t.Errorf("a branch that is not there: %v", err)
			}
			for _, b := range []string{"refs/tags/v1", "a..b", "a b"} {
				if _, err = m.ImportSource(t.Context(), address, git.ImportOptions{Branch: b}); !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer != "/branch" {
					t.Errorf("branch %q: %v", b, err)
				}
			}
			for _, rec := range run.Records() {
				if strings.Contains(fmt.Sprint(rec.Argv), bare.Dir) {
					t.Errorf("the address is in an argument list: %v", rec.Argv)
				}
			}
		})
	}
	sameFolder(t, before, fingerprint(t, bare.Dir))
	m, _ := openMirrorEnv(t, nil)
	if _, err := m.ImportSource(t.Context(), bare.Dir, git.ImportOptions{Branch: "side"}); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("a folder's other branch: %v", err)
	}
}

func TestImportOfAnAddressThatGivesNothing(t *testing.T) {
	closed := gittest.Refusing(t)
	empty := gittest.InitBare(t)
	junk := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write([]byte("zzzz\x1b[31mnot git at all"))
	}))
	defer junk.Close()
	for name, tc := range map[string]struct {
		address string
		code    domain.ErrorCode
	}{
		"nobody there": {"http://" + closed + "/x.git", domain.CodeUnavailable},
		"no folder":    {"file://" + t.TempDir() + "/none", domain.CodeUnavailable},
		"empty":        {"file://" + empty.Dir, domain.CodeNotFound},
		"junk":         {junk.URL + "/x.git", domain.CodeUnavailable},
	} {
		m, _ := openMirrorEnv(t, nil)
		if _, err := m.ImportSource(t.Context(), tc.address, git.ImportOptions{}); domain.CodeOf(err) != tc.code {
			t.Errorf("%s: %s %v", name, domain.CodeOf(err), err)
		}
		if left, _ := os.ReadDir(filepath.Join(m.Dir(), "objects", "pack")); len(left) != 0 {
			t.Errorf("%s: the mirror has %v", name, left)
		}
	}
}

// What a hostile server sends: objects no checkout may see, a flood, nothing at all.
func TestImportFromAHostileServer(t *testing.T) {
	t.Run("names", func(t *testing.T) {
		r := gittest.InitBare(t)
		blob := r.Object("blob", []byte("x"))
		sub := r.RawTree(gittest.Entry{Mode: "100644", Name: "config", ID: blob})
		tree := r.RawTree(gittest.Entry{Mode: "40000", Name: ".git", ID: sub})
		r.Git("update-ref", "refs/heads/main", r.CommitTree(tree))
		r.Git("symbolic-ref", "HEAD", "refs/heads/main")
		m, _ := openMirrorEnv(t, nil)
		_, err := m.ImportSource(t.Context(), "file://"+r.Dir, git.ImportOptions{})
		if domain.CodeOf(err) != domain.CodeDenied || !errors.Is(err, git.ErrRefused) {
			t.Fatalf("%v", err)
		}
		if _, err := m.Ref(git.BaseRef); err == nil {
			t.Error("the mirror points at it")
		}
	})
	t.Run("too much", func(t *testing.T) {
		src := gittest.Init(t)
		noise := make([]byte, 4<<20)
		f, err := os.Open("/dev/urandom")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Read(noise); err != nil {
			t.Fatal(err)
		}
		src.Write("big.bin", string(noise))
		src.Commit("big")
		upstream := httpRemote(t, filepath.Dir(src.Dir)) + "/" + filepath.Base(src.Dir)
		// A server that stops in the middle keeps nobody: what came is too much already.
		slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q, err := http.NewRequestWithContext(r.Context(), r.Method, upstream+r.URL.String(), r.Body)
			if err != nil {
				return
			}
			q.Header, q.ContentLength = r.Header, r.ContentLength
			resp, err := http.DefaultTransport.RoundTrip(q)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			for k, v := range resp.Header {
				if k != "Content-Length" {
					w.Header()[k] = v
				}
			}
			w.WriteHeader(resp.StatusCode)
			sent, buf := 0, make([]byte, 64<<10)
			for {
				n, err := resp.Body.Read(buf)
				if _, werr := w.Write(buf[:n]); err != nil || werr != nil {
					return
				}
				w.(http.Flusher).Flush()
				if sent += n; sent > 2<<20 {
					<-r.Context().Done()
					return
				}
			}
		}))
		defer slow.Close()
		run := &proc.Runner{}
		home := t.TempDir()
		m, err := git.Open(filepath.Join(t.TempDir(), "mirror.git"), git.Options{Runner: run, MaxFetch: 1 << 20, Getenv: func(k string) string {
			return map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}[k]
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = m.ImportSource(t.Context(), slow.URL+"/.git", git.ImportOptions{}); domain.CodeOf(err) != domain.CodeTooLarge {
			t.Fatalf("%v", err)
		}
		if run.Live() != 0 {
			t.Error("git still runs")
		}
	})
	t.Run("branches", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("only Linux bounds another process's memory")
		}
		// A server that lists branches without end.
		sent := make(chan int64, 1)
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
			var n int64
			for i := 0; n < 8<<30; i++ {
				line := fmt.Sprintf("%040x refs/heads/b%09d\n", i+1, i)
				k, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line)
				if n += int64(k); err != nil {
					break
				}
			}
			select {
			case sent <- n:
			default:
			}
		}))
		defer endless.Close()
		home := t.TempDir()
		run := &proc.Runner{}
		m, err := git.Open(filepath.Join(t.TempDir(), "mirror.git"), git.Options{Runner: run, MaxMemory: 64 << 20, Getenv: func(k string) string {
			return map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}[k]
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = m.ImportSource(t.Context(), endless.URL+"/x.git", git.ImportOptions{}); domain.CodeOf(err) != domain.CodeUnavailable {
			t.Fatalf("%v", err)
		}
		if n := <-sent; n > 1<<30 {
			t.Errorf("git took %d bytes of branches", n)
		}
		if run.Live() != 0 {
			t.Error("git still runs")
		}
	})
	t.Run("silence", func(t *testing.T) {
		reached := make(chan struct{}, 1)
		mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case reached <- struct{}{}:
			default:
			}
			<-r.Context().Done()
		}))
		defer mute.Close()
		m, run := openMirrorEnv(t, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("given up")
		go func() { <-reached; cancel(why) }()
		done := make(chan error, 1)
		go func() { _, err := m.ImportSource(ctx, mute.URL+"/x.git", git.ImportOptions{}); done <- err }()
		select {
		case err := <-done:
			if !errors.Is(err, why) {
				t.Fatalf("%v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("it waits for ever")
		}
		if run.Live() != 0 {
			t.Error("git still runs")
		}
	})
}

// A repository whose every setting and hook leads to an alarm is fetched by its
// address without one, and stays as it is.
func TestImportOfAnAddressRunsNothingThere(t *testing.T) {
	wire := gittest.NewTripwire(t)
	repo, outside := gittest.Hostile(t, wire)
	before := []map[string]string{fingerprint(t, repo.Dir), fingerprint(t, outside)}
	m, _ := openMirrorEnv(t, nil)
	res, err := m.ImportSource(t.Context(), "file://"+repo.Dir, git.ImportOptions{})
	wire.Silent(t, "fetching it")
	if err != nil || res.Commit != strings.TrimSpace(repo.Git("rev-parse", "main")) {
		t.Fatalf("%+v %v", res, err)
	}
	wire.Reset()
	sameFolder(t, before[0], fingerprint(t, repo.Dir))
	sameFolder(t, before[1], fingerprint(t, outside))
}
