//go:build linux

package boot_test

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"testing"

	"glasshouse/vm/guest"
)

// A terminal outlives the most that is kept of any stream: a reader that keeps up
// misses nothing, one that comes late gets the newest, and offsets go on.
func TestTerminalPastTheLimit(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	const lines, width = 1_400_000, 64 // 85 MiB
	script := `stty -opost; read x; python3 -c "
import sys
for i in range(` + strconv.Itoa(lines) + `): sys.stdout.write('%063d\n' % i)
"; read y; echo end:$y`
	p, err := g.Execs().Start(h.within(10*hang), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", script}, TTY: &guest.Winsize{Rows: 30, Cols: 100}, Stdin: true, OutputLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	// Offsets never go back; what was leapt over is counted.
	var got, lost, end int64
	var tail []byte
	last := []byte(pad(lines - 1))
	for !bytes.Contains(tail, last) {
		o, err := p.Next()
		if err != nil {
			t.Fatalf("after %d bytes: %v", end, err)
		}
		if o.Offset < end || o.Stderr {
			t.Fatalf("a piece at %d after %d", o.Offset, end)
		}
		lost += o.Offset - end
		got, end = got+int64(len(o.Data)), o.Offset+int64(len(o.Data))
		tail = append(tail, o.Data...)
		tail = tail[max(0, len(tail)-1000):]
	}
	if got+lost != end || end < lines*width {
		t.Fatalf("%d bytes came and %d were left out of %d; %d were written", got, lost, end, lines*width)
	}
	t.Logf("%d bytes came, %d were left out", got, lost)
	_ = p.Close()

	// One that comes late finds the newest, whole, at its offset.
	late, err := g.Execs().Terminal(h.ctx(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := late.Next()
	if err != nil {
		t.Fatal(err)
	}
	if o.Offset < end-(2<<20) || o.Offset > end-(1<<20)+width {
		t.Errorf("a late reader begins at %d of %d", o.Offset, end)
	}
	kept := bytes.Clone(o.Data)
	for from := o.Offset; !bytes.Contains(kept[max(0, len(kept)-1000):], last); {
		if o, err = late.Next(); err != nil {
			t.Fatal(err)
		}
		if o.Offset != from+int64(len(kept)) {
			t.Fatalf("a gap in what is kept: %d after %d", o.Offset, from+int64(len(kept)))
		}
		kept = append(kept, o.Data...)
	}
	whole := bytes.Split(kept[bytes.IndexByte(kept, '\n')+1:bytes.LastIndexByte(kept, '\n')], []byte("\n"))
	for i, l := range whole {
		if want := pad(lines - len(whole) + i); string(l) != want {
			t.Fatalf("line %d of what is kept is %q, want %q", i, l, want)
		}
	}
	// It still takes input, by the reader that joined, and ends as any other.
	if _, err := late.Write([]byte("over\n")); err != nil {
		t.Fatal(err)
	}
	kept = kept[:0]
	for {
		o, err := late.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, o.Data...)
		end = o.Offset + int64(len(o.Data))
	}
	if x := late.Exit(); x.Code != 0 || x.Stdout.Total != end || x.Stdout.Dropped != 0 || !bytes.Contains(kept, []byte("end:over")) {
		t.Fatalf("exit %+v at %d, output %q", x, end, kept)
	}
}

func pad(n int) string {
	s := strconv.Itoa(n)
	return string(bytes.Repeat([]byte("0"), 63-len(s))) + s
}
