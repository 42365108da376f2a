package image

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// readCPIO reads archives that follow one another, as the kernel does: a later file replaces an earlier one.
func readCPIO(t *testing.T, name string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	pos := 0
	align := func() { pos = (pos + 3) &^ 3 }
	for {
		for pos < len(data) && data[pos] == 0 {
			pos++
		}
		if pos >= len(data) {
			return out
		}
		if pos%4 != 0 || !bytes.HasPrefix(data[pos:], []byte("070701")) {
			t.Fatalf("no header at %d", pos)
		}
		field := func(i int) int {
			v, err := strconv.ParseUint(string(data[pos+6+8*i:pos+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
		size, nameSize := field(6), field(11)
		start := pos + 110
		entry := strings.TrimSuffix(string(data[start:start+nameSize]), "\x00")
		pos = start + nameSize
		align()
		if entry != "TRAILER!!!" {
			out[entry] = data[pos : pos+size]
		}
		pos += size
		align()
	}
}

func TestCPIORoundTrip(t *testing.T) {
	name := t.TempDir() + "/a.cpio"
	var b bytes.Buffer
	want := map[string]string{"a": "", "dir/b": "12345", "dir/long-name-日本": strings.Repeat("x", 1001)}
	for range 2 {
		c := &cpioWriter{w: &b}
		for n, text := range want {
			if err := c.add(n, cpioFile|0o644, int64(len(text)), strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if b.Len()%512 != 0 {
			t.Fatalf("the archive ends at %d", b.Len())
		}
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got := readCPIO(t, name)
	for n, text := range want {
		if string(got[n]) != text {
			t.Errorf("%s: %d bytes of %d", n, len(got[n]), len(text))
		}
	}
	for size, what := range map[int64]string{10: "a body shorter than its size", 1 << 32: "a body that does not fit"} {
		c := &cpioWriter{w: &b}
		if err := c.add("bad", cpioFile, size, strings.NewReader("123")); err == nil {
			t.Errorf("%s went unnoticed", what)
		}
		if err := c.add("good", cpioFile, 0, nil); err == nil {
			t.Errorf("%s was forgotten", what)
		}
		if err := c.close(); err == nil {
			t.Errorf("an archive with %s is whole", what)
		}
	}
}
