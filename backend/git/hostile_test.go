package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
)

// whole is a small right pack: a commit, its tree, a blob.
func whole() (*gittest.RawPack, string) {
	blob := []byte("hello\n")
	tree := gittest.TreeOf(gittest.Entry{Mode: "100644", Name: "a", ID: gittest.ID("blob", blob)})
	commit := gittest.CommitOf(gittest.ID("tree", tree))
	p := gittest.NewRawPack(3).Object(gittest.TypeCommit, commit, -1).Object(gittest.TypeTree, tree, -1).Object(gittest.TypeBlob, blob, -1)
	return p, gittest.ID("commit", commit)
}

func TestHostilePacks(t *testing.T) {
	good, want := whole()
	goodBytes := good.Bytes()
	blob := []byte("hello\n")
	blobID := gittest.ID("blob", blob)
	flip := func(b []byte, i int) []byte {
		c := bytes.Clone(b)
		c[i] ^= 0x40
		return c
	}
	one := func(n uint32) *gittest.RawPack { return gittest.NewRawPack(n) }
	mb := int64(1 << 20)
	chain := func(depth int) []byte {
		p := one(uint32(depth+1)).Object(gittest.TypeBlob, blob, -1)
		size := int64(len(blob))
		for i := range depth {
			p.OfsTo(i, gittest.DeltaAppend(size, "x"))
			size++
		}
		return p.Bytes()
	}
	// A hundred deltas of 60 MiB each upon one small base: 6 GiB out of little.
	bombBase := int64(60) * mb
	bomb := func() []byte {
		p := one(401).Zeros(bombBase)
		for i := range 400 {
			p.OfsTo(0, gittest.DeltaAppend(bombBase, fmt.Sprint(i)))
		}
		return p.Bytes()
	}
	deep := func() []byte {
		p := one(151).Zeros(bombBase)
		size := bombBase
		for i := range 150 {
			p.OfsTo(i, gittest.DeltaAppend(size, "y"))
			size++
		}
		return p.Bytes()
	}
	zeros := func(count int, n int64) []byte {
		p := one(uint32(count))
		for i := range count {
			p.Zeros(n - int64(i))
		}
		return p.Bytes()
	}
	bigCount := one(0xffffffff)
	cases := map[string]struct {
		data []byte
		why  error
	}{
		"nothing":               {nil, git.ErrCorrupt},
		"no pack":               {[]byte("GET / HTTP/1.1\r\n\r\n"), git.ErrCorrupt},
		"version 3":             {bytes.Replace(goodBytes, []byte("PACK\x00\x00\x00\x02"), []byte("PACK\x00\x00\x00\x03"), 1), git.ErrCorrupt},
		"huge count":            {bigCount.Bytes(), git.ErrTooLarge},
		"more than announced":   {append(bytes.Clone(goodBytes), goodBytes...), git.ErrCorrupt},
		"fewer than announced":  {one(9).Object(gittest.TypeBlob, blob, -1).Bytes(), git.ErrCorrupt},
		"wrong checksum":        {flip(goodBytes, len(goodBytes)-1), git.ErrCorrupt},
		"flipped head":          {flip(goodBytes, 13), nil},
		"flipped data":          {flip(goodBytes, 30), git.ErrCorrupt},
		"type 0":                {one(1).Object(0, blob, -1).Bytes(), git.ErrCorrupt},
		"type 5":                {one(1).Object(5, blob, -1).Bytes(), git.ErrCorrupt},
		"size too small":        {one(1).Object(gittest.TypeBlob, blob, 3).Bytes(), git.ErrCorrupt},
		"size too large":        {one(1).Object(gittest.TypeBlob, blob, 1000).Bytes(), git.ErrCorrupt},
		"size of an exabyte":    {one(1).Object(gittest.TypeBlob, blob, 1<<60).Bytes(), nil},
		"blob bomb":             {zeros(1, 300*mb), git.ErrTooLarge},
		"many bombs":            {zeros(6, 200*mb), git.ErrTooLarge},
		"delta bomb":            {bomb(), git.ErrTooLarge},
		"deep delta bomb":       {deep(), git.ErrTooLarge},
		"delta claims a lot":    {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, append(gittest.Varint(gittest.Varint(nil, 6), 1<<40), 0x91, 0, 6)).Bytes(), git.ErrTooLarge},
		"delta multiplies":      {one(2).Zeros(40*mb).OfsTo(0, gittest.DeltaCopy(40*mb, 40*mb, 8)).Bytes(), git.ErrTooLarge},
		"chain of 5000":         {chain(5000), git.ErrTooLarge},
		"delta before the pack": {one(2).Object(gittest.TypeBlob, blob, -1).Ofs(1<<30, gittest.DeltaAppend(6, "x")).Bytes(), git.ErrCorrupt},
		"delta into an object":  {one(2).Object(gittest.TypeBlob, blob, -1).Ofs(3, gittest.DeltaAppend(6, "x")).Bytes(), git.ErrCorrupt},
		"delta upon itself":     {one(2).Object(gittest.TypeBlob, blob, -1).Ofs(0, gittest.DeltaAppend(6, "x")).Bytes(), git.ErrCorrupt},
		"thin":                  {one(1).Ref(blobID, gittest.DeltaAppend(6, "x")).Bytes(), git.ErrCorrupt},
		"circle": {one(2).Ref(gittest.ID("blob", []byte("b")), gittest.DeltaAppend(1, "a")).
			Ref(gittest.ID("blob", []byte("a")), gittest.DeltaAppend(1, "b")).Bytes(), git.ErrCorrupt},
		"copy past the base":   {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, append(gittest.Varint(gittest.Varint(nil, 6), 9), 0x91, 0, 9)).Bytes(), git.ErrCorrupt},
		"reserved instruction": {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, append(gittest.Varint(gittest.Varint(nil, 6), 1), 0)).Bytes(), git.ErrCorrupt},
		"insert cut short":     {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, append(gittest.Varint(gittest.Varint(nil, 6), 5), 5, 'a')).Bytes(), git.ErrCorrupt},
		"wrong base size":      {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, gittest.DeltaAppend(7, "x")).Bytes(), git.ErrCorrupt},
		"twice":                {one(2).Object(gittest.TypeBlob, blob, -1).Object(gittest.TypeBlob, blob, -1).Bytes(), git.ErrCorrupt},
		"empty delta":          {one(2).Object(gittest.TypeBlob, blob, -1).OfsTo(0, nil).Bytes(), git.ErrCorrupt},
		"endless stream":       {append(bytes.Clone(goodBytes), make([]byte, 1<<20)...), git.ErrCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, r := openMirror(t)
			lim := git.GuestLimits()
			lim.TotalBytes = 1 << 30 // the bombs make more; it only shortens the test
			_, err := m.Receive(t.Context(), bytes.NewReader(c.data), nil, lim)
			var pe *git.PackError
			if !errors.As(err, &pe) || c.why != nil && pe.Why != c.why {
				t.Fatalf("%v, want %v", err, c.why)
			}
			unchanged(t, m)
			if rss := maxRSS(); rss > 1200<<20 {
				t.Errorf("a checking process took %d MiB", rss>>20)
			}
			if n := r.Live(); n != 0 {
				t.Errorf("%d processes left", n)
			}
		})
	}
	t.Run("cut anywhere", func(t *testing.T) {
		m, _ := openMirror(t)
		for n := 0; n < len(goodBytes); n += 7 {
			if _, err := m.Receive(t.Context(), bytes.NewReader(goodBytes[:n]), []string{want}, git.GuestLimits()); !errors.Is(err, git.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: %v", n, len(goodBytes), err)
			}
		}
		unchanged(t, m)
	})
	t.Run("the right one", func(t *testing.T) {
		m, _ := openMirror(t)
		if _, err := m.Receive(t.Context(), bytes.NewReader(goodBytes), []string{want}, git.GuestLimits()); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Receive(t.Context(), bytes.NewReader(goodBytes), []string{want}, git.GuestLimits()); err != nil {
			t.Fatalf("the same pack again: %v", err)
		}
		inMirror(t, m).Git("fsck", "--full", "--strict")
	})
	t.Run("chain of 4000 is fine", func(t *testing.T) {
		m, _ := openMirror(t)
		if _, err := m.Receive(t.Context(), bytes.NewReader(chain(4000)), nil, git.GuestLimits()); err != nil {
			t.Fatal(err)
		}
	})
}

func unchanged(t testing.TB, m *git.Mirror) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(m.Dir(), "objects", "*", "*"))
	q, _ := os.ReadDir(filepath.Join(m.Dir(), "quarantine"))
	if len(left) != 0 || len(q) != 0 {
		t.Fatalf("the mirror changed: %v %v", left, q)
	}
}

func TestHostileObjects(t *testing.T) {
	blob := []byte("x\n")
	id := gittest.ID("blob", blob)
	e := func(mode, name string) gittest.Entry { return gittest.Entry{Mode: mode, Name: name, ID: id} }
	pack := func(tree []byte, extra ...[]byte) ([]byte, string) {
		commit := gittest.CommitOf(gittest.ID("tree", tree))
		p := gittest.NewRawPack(uint32(3+len(extra))).Object(gittest.TypeCommit, commit, -1).Object(gittest.TypeTree, tree, -1).Object(gittest.TypeBlob, blob, -1)
		for _, x := range extra {
			p.Object(gittest.TypeBlob, x, -1)
		}
		return p.Bytes(), gittest.ID("commit", commit)
	}
	for _, name := range []string{
		".git", ".GIT", ".Git", ".git ", ".git.", ".git. .", "git~1", "GIT~1", ".git::$INDEX_ALLOCATION", ".git:x", ".g\u200cit", "\u200d.git", ".gi\ufefft", ".GI\u202eT",
		"..", ".", "", "a/b", "/etc", "a\\..\\b", "..\\x", "a\\.git\\config", ".git\\hooks", strings.Repeat("n", 256),
	} {
		m, _ := openMirror(t)
		data, want := pack(gittest.TreeOf(e("100644", name)))
		if _, err := m.Receive(t.Context(), bytes.NewReader(data), []string{want}, git.GuestLimits()); !errors.Is(err, git.ErrRefused) {
			t.Errorf("the name %q: %v", name, err)
		}
		unchanged(t, m)
		lenient := git.GuestLimits()
		lenient.Lenient = true
		if _, err := m.Receive(t.Context(), bytes.NewReader(data), []string{want}, lenient); !errors.Is(err, git.ErrRefused) {
			t.Errorf("the name %q from a person's own repository: %v", name, err)
		}
	}
	for name, tree := range map[string][]byte{
		"duplicate":            gittest.TreeOf(e("100644", "a"), e("100644", "a")),
		"duplicate kind":       gittest.TreeOf(e("100644", "a"), gittest.Entry{Mode: "40000", Name: "a", ID: id}),
		"unsorted":             gittest.TreeOf(e("100644", "b"), e("100644", "a")),
		"group-writable":       gittest.TreeOf(e("100664", "a")),
		"device":               gittest.TreeOf(e("20644", "a")),
		"zero-padded":          gittest.TreeOf(e("0100644", "a")),
		"null":                 gittest.TreeOf(gittest.Entry{Mode: "100644", Name: "a", ID: strings.Repeat("0", 40)}),
		"gitmodules as a link": gittest.TreeOf(e("120000", ".gitmodules")),
		"its NTFS short name":  gittest.TreeOf(e("120000", "GITMOD~1")),
	} {
		m, _ := openMirror(t)
		data, want := pack(tree)
		if _, err := m.Receive(t.Context(), bytes.NewReader(data), []string{want}, git.GuestLimits()); !errors.Is(err, git.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		unchanged(t, m)
	}
	for name, tree := range map[string][]byte{
		"a blob as a folder": gittest.TreeOf(gittest.Entry{Mode: "40000", Name: "d", ID: id}),
		"cut short":          gittest.TreeOf(e("100644", "a"))[:20],
		"no mode":            []byte(" a\x00aaaaaaaaaaaaaaaaaaaa"),
		"garbage":            []byte("garbage"),
	} {
		m, _ := openMirror(t)
		data, want := pack(tree)
		if _, err := m.Receive(t.Context(), bytes.NewReader(data), []string{want}, git.GuestLimits()); !errors.Is(err, git.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		unchanged(t, m)
	}
	tree := gittest.TreeOf(e("100644", "a"))
	tid := gittest.ID("tree", tree)
	for name, commit := range map[string]string{
		"no author":         "tree " + tid + "\ncommitter A <a> 1 +0000\n\nx",
		"no tree":           "author A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"two trees":         "tree " + tid + "\ntree " + tid + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"no date":           "tree " + tid + "\nauthor A <a>\ncommitter A <a> 1 +0000\n\nx",
		"no address":        "tree " + tid + "\nauthor A 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"NUL in the person": "tree " + tid + "\nauthor A\x00 <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"NUL in the words":  "tree " + tid + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\x00y",
		"unknown parent":    "tree " + tid + "\nparent " + strings.Repeat("1", 40) + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"a blob as parent":  "tree " + tid + "\nparent " + id + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
		"a blob as tree":    "tree " + id + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx",
	} {
		m, _ := openMirror(t)
		p := gittest.NewRawPack(3).Object(gittest.TypeCommit, []byte(commit), -1).Object(gittest.TypeTree, tree, -1).Object(gittest.TypeBlob, blob, -1)
		_, err := m.Receive(t.Context(), bytes.NewReader(p.Bytes()), []string{gittest.ID("commit", []byte(commit))}, git.GuestLimits())
		var pe *git.PackError
		if !errors.As(err, &pe) {
			t.Errorf("%s: %v", name, err)
		}
		unchanged(t, m)
	}
	// What is only worth a look is taken and listed.
	modules := []byte("[submodule \"../../x\"]\n\turl = ext::sh -c id\n\tpath = .git/hooks\n\tupdate = !id\n[submodule \"y\"]\n\turl = https://example.org/%0ax\n\tpath = y\r\n")
	up, abs := []byte("../../etc/passwd"), []byte("/etc/passwd")
	tree = gittest.TreeOf(gittest.Entry{Mode: "100644", Name: ".gitmodules", ID: gittest.ID("blob", modules)}, e("100644", "A"), e("100644", "a"),
		gittest.Entry{Mode: "120000", Name: "abs", ID: gittest.ID("blob", abs)}, gittest.Entry{Mode: "160000", Name: "sub", ID: strings.Repeat("3", 40)},
		gittest.Entry{Mode: "120000", Name: "up", ID: gittest.ID("blob", up)})
	data, want := pack(tree, modules, up, abs)
	m, _ := openMirror(t)
	rec, err := m.Receive(t.Context(), bytes.NewReader(data), []string{want}, git.GuestLimits())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, f := range rec.Findings {
		kinds[f.Kind]++
	}
	if kinds["submodule-danger"] != 5 || kinds["symlink-up"] != 1 || kinds["symlink-absolute"] != 1 || kinds["submodule"] != 1 || kinds["case-twin"] != 1 {
		t.Errorf("findings %v: %+v", kinds, rec.Findings)
	}
}

// TestReceiveIsBounded: a sender that never ends, and one that never speaks.
func TestReceiveIsBounded(t *testing.T) {
	m, r := openMirror(t)
	lim := git.GuestLimits()
	lim.PackBytes = 8 << 20
	_, err := m.Receive(t.Context(), io.MultiReader(bytes.NewReader(gittest.NewRawPack(3).Buf.Bytes()), endless{}), nil, lim)
	var pe *git.PackError
	if !errors.As(err, &pe) {
		t.Fatalf("%v", err)
	}
	unchanged(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	pr, pw := io.Pipe()
	defer pw.Close()
	if _, err := m.Receive(ctx, pr, nil, lim); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a silent sender: %v", err)
	}
	unchanged(t, m)
	if n := r.Live(); n != 0 {
		t.Fatalf("%d processes left", n)
	}
	// The memory limit ends the process, not the host.
	lim = git.GuestLimits()
	lim.MemoryBytes = 96 << 20
	p := gittest.NewRawPack(2).Zeros(60 << 20)
	p.OfsTo(0, gittest.DeltaAppend(60<<20, "x"))
	if _, err := m.Receive(t.Context(), bytes.NewReader(p.Bytes()), nil, lim); !errors.Is(err, git.ErrTooLarge) {
		t.Fatalf("past the memory limit: %v", err)
	}
	unchanged(t, m)
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 0xff
	}
	return len(b), nil
}

func TestMirrorsKeepOnlyWhatIsTheirs(t *testing.T) {
	m, r := openMirror(t)
	for _, name := range []string{"refs/heads/main", "refs/glasshouse/../heads/x", "refs/glasshouse/", "refs/glasshouse/A", "HEAD", "refs/glasshouse/a.lock", "refs/glasshouse/a/../../config"} {
		if err := m.SetRef(name, strings.Repeat("1", 40), "*"); err == nil {
			t.Errorf("%q became a reference", name)
		}
	}
	// What someone left in the folder does not survive opening it.
	for _, d := range []string{"hooks", "info"} {
		_ = os.MkdirAll(filepath.Join(m.Dir(), d), 0o755)
	}
	_ = os.WriteFile(filepath.Join(m.Dir(), "hooks/pre-push"), []byte("#!/bin/sh\n"), 0o755)
	_ = os.WriteFile(filepath.Join(m.Dir(), "config"), []byte("[core]\n\tfsmonitor = id\n"), 0o644)
	_ = os.WriteFile(filepath.Join(m.Dir(), "objects/info/alternates"), []byte("/\n"), 0o644)
	m, err := git.Open(m.Dir(), git.Options{Runner: r})
	if err != nil {
		t.Fatal(err)
	}
	conf, _ := os.ReadFile(filepath.Join(m.Dir(), "config"))
	if strings.Contains(string(conf), "fsmonitor") {
		t.Error("foreign configuration is kept")
	}
	for _, p := range []string{"hooks", "objects/info/alternates", "info"} {
		if _, err := os.Lstat(filepath.Join(m.Dir(), p)); err == nil {
			t.Errorf("%s is kept", p)
		}
	}
}
