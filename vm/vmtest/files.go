package vmtest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// files: reading and writing from outside, below the allowed folders alone.
func (s *suite) files(t *testing.T) {
	g := s.open(t)
	fs := g.Files()
	s.sh(t, g, "rm -rf /workspace/f && mkdir /workspace/f")
	s.sub(t, "roundtrip", func(t *testing.T) {
		data := bytes.Repeat([]byte("\x00\xffglass\r\n"), 50_000)
		info, err := fs.Write(s.ctx(t), "f/deep/er/data.bin", data, guest.WriteOptions{Mode: 0o755})
		must(t, err)
		if info.Sha256 != sum(data) || info.Size != int64(len(data)) || info.Mode&0o777 != 0o755 || info.Type != "file" {
			t.Errorf("written: %+v", info)
		}
		d, err := fs.Read(s.ctx(t), guest.Workspace+"/f/deep/er/data.bin", 0, 1<<20)
		must(t, err)
		if !bytes.Equal(d.Data, data) || d.Info.Sha256 != sum(data) {
			t.Errorf("read: %d bytes, %+v", len(d.Data), d.Info)
		}
		d, err = fs.Read(s.ctx(t), "f/deep/er/data.bin", 7, 11)
		if err != nil || !bytes.Equal(d.Data, data[7:18]) || d.Offset != 7 || d.Info.Size != int64(len(data)) {
			t.Errorf("a piece: %q at %d, %v", d.Data, d.Offset, err)
		}
		// The command inside sees the same, as its own file.
		if r := s.sh(t, g, "sha256sum < f/deep/er/data.bin; stat -c %U f/deep/er/data.bin f/deep"); r.out() != sum(data)+"  -\nagent\nagent\n" {
			t.Errorf("inside: %v", r)
		}
	})
	s.sub(t, "names", func(t *testing.T) {
		names := []string{"with space", "玻璃房.txt", "new\nline", "-rf", "quote'\"", "\xff\xfe.bin", strings.Repeat("n", 255)}
		for _, n := range names {
			if _, err := fs.Write(s.ctx(t), "f/names/"+n, []byte(n), guest.WriteOptions{}); err != nil {
				t.Errorf("%q: %v", n, err)
			}
		}
		list, more, err := fs.List(s.ctx(t), "f/names", 100)
		must(t, err)
		var got []string
		for _, e := range list {
			got = append(got, e.Path[strings.LastIndexByte(e.Path, '/')+1:])
		}
		for _, n := range names {
			if !slices.Contains(got, n) {
				t.Errorf("%q is not in %q", n, got)
			}
		}
		if more || len(list) != len(names) {
			t.Errorf("%d entries, more %v", len(list), more)
		}
		if list, more, err = fs.List(s.ctx(t), "f/names", 3); err != nil || len(list) != 3 || !more {
			t.Errorf("at most 3: %d, more %v, %v", len(list), more, err)
		}
	})
	s.sub(t, "match", func(t *testing.T) {
		one, err := fs.Write(s.ctx(t), "f/m", []byte("one"), guest.WriteOptions{IfMatch: "absent"})
		must(t, err)
		if _, err := fs.Write(s.ctx(t), "f/m", []byte("two"), guest.WriteOptions{IfMatch: "absent"}); !errors.Is(err, guest.ErrConflict) {
			t.Errorf("over an existing file: %v", err)
		}
		if _, err := fs.Write(s.ctx(t), "f/m", []byte("two"), guest.WriteOptions{IfMatch: sum([]byte("other"))}); !errors.Is(err, guest.ErrConflict) {
			t.Errorf("over another content: %v", err)
		}
		if _, err := fs.Write(s.ctx(t), "f/m", []byte("two"), guest.WriteOptions{IfMatch: one.Sha256}); err != nil {
			t.Errorf("over the right one: %v", err)
		}
		if d, err := fs.Read(s.ctx(t), "f/m", 0, 10); err != nil || string(d.Data) != "two" {
			t.Errorf("%q %v", d.Data, err)
		}
	})
	s.sub(t, "missing", func(t *testing.T) {
		if _, err := fs.Stat(s.ctx(t), "f/none"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("stat: %v", err)
		}
		if _, err := fs.Read(s.ctx(t), "f/none", 0, 1); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("read: %v", err)
		}
		if _, _, err := fs.List(s.ctx(t), "f/none", 10); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("list: %v", err)
		}
	})
	s.sub(t, "links", func(t *testing.T) {
		s.sh(t, g, "cd f; ln -s /etc/passwd out; ln -s /etc outdir; ln -s m in; ln -s ../../../etc rel; mkfifo pipe; ln -s /proc/1/root root")
		for _, p := range []string{"f/out", "f/outdir/passwd", "f/rel/passwd", "f/root/etc/passwd", "/etc/passwd", "../etc/passwd", "f/../../etc/passwd", "/proc/1/environ", "f/pipe"} {
			if d, err := fs.Read(s.ctx(t), p, 0, 100); err == nil {
				t.Errorf("%s was read: %q", p, d.Data)
			}
			if _, err := fs.Write(s.ctx(t), p, []byte("x"), guest.WriteOptions{}); err == nil && p != "f/out" && p != "f/pipe" {
				t.Errorf("%s was written", p)
			}
		}
		if r := s.sh(t, g, "head -c 5 /etc/passwd"); r.out() != "root:" {
			t.Errorf("/etc/passwd: %v", r)
		}
		if i, err := fs.Stat(s.ctx(t), "f/in"); err != nil || i.Type != "link" || i.Target != "m" {
			t.Errorf("a link: %+v %v", i, err)
		}
		if _, err := fs.Read(s.ctx(t), "a\x00b", 0, 1); err == nil {
			t.Error("a path with a NUL")
		}
	})
	s.sub(t, "folders", func(t *testing.T) {
		must(t, fs.Mkdir(s.ctx(t), "f/dir/sub"))
		_, err := fs.Write(s.ctx(t), "f/dir/sub/x", nil, guest.WriteOptions{})
		must(t, err)
		if err := fs.Remove(s.ctx(t), "f/dir", false); err == nil {
			t.Error("a full folder was removed")
		}
		must(t, fs.Remove(s.ctx(t), "f/dir", true))
		if _, err := fs.Stat(s.ctx(t), "f/dir"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if err := fs.Remove(s.ctx(t), guest.Workspace, true); err == nil {
			t.Error("the workspace itself was removed")
		}
		if _, err := fs.Stat(s.ctx(t), "f/m"); err != nil {
			t.Error("and with it its files")
		}
	})
	s.sub(t, "search", func(t *testing.T) {
		s.sh(t, g, "rm -rf f/s; mkdir -p f/s/sub; printf 'alpha\\nBETA needle one\\n' > f/s/a.txt; printf 'x\\ny\\nneedle (two)\\n' > f/s/sub/b.go; printf 'nee\\0dle needle\\n' > f/s/bin; for i in $(seq 50); do echo needle many; done > f/s/sub/many.md")
		r, err := fs.Search(s.ctx(t), guest.SearchQuery{Pattern: "needle (two)", Literal: true, Path: "f/s"})
		if err != nil || len(r.Matches) != 1 || r.Matches[0].Line != 3 || !strings.HasSuffix(r.Matches[0].Path, "f/s/sub/b.go") || !strings.Contains(r.Matches[0].Text, "needle (two)") {
			t.Errorf("literal: %+v %v", r, err)
		}
		r, err = fs.Search(s.ctx(t), guest.SearchQuery{Pattern: "^beta", IgnoreCase: true, Path: "f/s"})
		if err != nil || len(r.Matches) != 1 || r.Matches[0].Line != 2 {
			t.Errorf("ignoring case: %+v %v", r, err)
		}
		r, err = fs.Search(s.ctx(t), guest.SearchQuery{Pattern: "needle", Path: "f/s", Glob: "*.md", Limit: 10})
		if err != nil || len(r.Matches) != 10 || !r.More {
			t.Errorf("limited: %d, more %v, %v", len(r.Matches), r.More, err)
		}
		if _, err = fs.Search(s.ctx(t), guest.SearchQuery{Pattern: "(", Path: "f/s"}); err == nil {
			t.Error("a broken pattern found something")
		}
		if r, err = fs.Search(s.ctx(t), guest.SearchQuery{Pattern: "--help", Path: "f/s"}); err != nil || len(r.Matches) != 0 {
			t.Errorf("a pattern that looks like an option: %+v %v", r, err)
		}
		paths, more, err := fs.Glob(s.ctx(t), "f/s/**/*.go", true, 10)
		if err != nil || more || len(paths) != 1 || !strings.HasSuffix(paths[0], "f/s/sub/b.go") {
			t.Errorf("glob: %v %v %v", paths, more, err)
		}
	})
}

// watch: what changes inside is told, and nothing that is told did not happen.
func (s *suite) watch(t *testing.T) {
	s.can(t)
	g := s.open(t)
	s.sh(t, g, "rm -rf w && mkdir -p w/sub && echo 1 > w/old")
	ch, err := g.Watch(s.ctx(t))
	must(t, err)
	first, ok := <-ch
	if !ok {
		t.Fatal("the stream ended at once")
	}
	s.sh(t, g, "echo new > w/sub/new; echo more >> w/old; mkdir w/dir2; echo deep > w/dir2/deep; echo x > w/gone; rm w/gone; mv w/sub/new w/sub/moved")
	want := map[string]bool{"w/old": true, "w/sub/moved": true, "w/dir2/deep": true}
	seq := first.Seq
	for len(want) > 0 {
		select {
		case b, ok := <-ch:
			if !ok {
				t.Fatalf("the stream ended; still missing %v", want)
			}
			if b.Epoch == first.Epoch && b.Seq <= seq {
				t.Fatalf("batch %d after %d", b.Seq, seq)
			}
			seq = b.Seq
			for _, c := range b.Changes {
				p := strings.TrimPrefix(c.Path, guest.Workspace+"/")
				if c.Op != "delete" {
					delete(want, p)
				}
			}
		case <-s.ctx(t).Done():
			t.Fatalf("never told: %v", want)
		}
	}
}
