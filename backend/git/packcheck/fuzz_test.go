package packcheck

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/backend/git/gittest"
	"glasshouse/backend/git/odb"
)

// FuzzRun feeds packs of any shape: no panic, and what is called good can be read
// back whole.
func FuzzRun(f *testing.F) {
	blob := []byte("hello hello hello\n")
	tree := gittest.TreeOf(gittest.Entry{Mode: "100644", Name: "a", ID: gittest.ID("blob", blob)})
	commit := gittest.CommitOf(gittest.ID("tree", tree))
	p := gittest.NewRawPack(5).Object(gittest.TypeCommit, commit, -1).Object(gittest.TypeTree, tree, -1).Object(gittest.TypeBlob, blob, -1)
	p.OfsTo(2, gittest.DeltaAppend(int64(len(blob)), "x"))
	p.Ref(gittest.ID("blob", blob), gittest.DeltaAppend(int64(len(blob)), "y"))
	f.Add(p.Bytes()[:p.Buf.Len()])
	f.Add(gittest.NewRawPack(1).Object(gittest.TypeBlob, blob, -1).Buf.Bytes())
	lim := Limits{PackBytes: 1 << 16, Objects: 100, BlobBytes: 1 << 16, DeltaBytes: 1 << 16, TotalBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) < 12 || len(body) > 1<<14 {
			return
		}
		dir := t.TempDir()
		// The checksum is made right, so that what comes behind it is reached.
		sealed := (&gittest.RawPack{}).Seal(body)
		rep, err := Run(Job{Quarantine: dir, Limits: lim}, bytes.NewReader(sealed))
		if err != nil {
			return
		}
		if rep.Pack == "" {
			return
		}
		objects := filepath.Join(t.TempDir(), "objects")
		if err := os.MkdirAll(objects, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir, filepath.Join(objects, "pack")); err != nil {
			t.Fatal(err)
		}
		s, err := odb.Open(objects)
		if err != nil {
			t.Fatalf("a pack that was called good cannot be opened: %v", err)
		}
		defer s.Close()
		if err := s.Verify(); err != nil {
			t.Fatalf("a pack that was called good holds bad objects: %v", err)
		}
	})
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("base text"), gittest.DeltaAppend(9, "x"))
	f.Add([]byte(""), []byte{0, 1, 1, 'a'})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		out, err := odb.Delta(base, delta, 1<<20)
		if err == nil && len(out) > 1<<20 {
			t.Fatal("past the limit")
		}
	})
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("100644 a\x00aaaaaaaaaaaaaaaaaaaa"))
	f.Add(gittest.CommitOf(gittest.ID("tree", nil)))
	f.Add([]byte("[submodule \"a\"]\n\tpath = x\n\turl = ../y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if es, err := odb.ParseTree(data); err == nil {
			if ps, err := odb.CheckTree(data); err == nil && len(ps) == 0 && len(es) > 0 {
				if !bytes.Equal(odb.EncodeTree(es), data) {
					t.Fatal("a tree without a fault is not written back as it was")
				}
			}
		}
		if c, err := odb.ParseCommit(data); err == nil && len(c.Extra) == 0 && odb.CheckPerson(c.Author) == "" {
			if d, err := odb.ParseCommit(odb.EncodeCommit(c)); err != nil || d.Tree != c.Tree || d.Message != c.Message {
				t.Fatalf("%+v became %+v: %v", c, d, err)
			}
		}
		_, _, _ = odb.ParseTag(data)
		CheckModules(data)
	})
}
