package proto

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"glasshouse/vm/guest"
)

var update = flag.Bool("update", false, "write what was added to the golden descriptor")

// describe flattens the descriptor to one line a thing: name to shape.
func describe() map[string]string {
	out := map[string]string{}
	var msgs func(protoreflect.MessageDescriptors)
	msgs = func(ms protoreflect.MessageDescriptors) {
		for i := 0; i < ms.Len(); i++ {
			m := ms.Get(i)
			out[string(m.FullName())] = "message"
			for k := 0; k < m.Fields().Len(); k++ {
				f := m.Fields().Get(k)
				shape := fmt.Sprintf("%d %s %s", f.Number(), f.Cardinality(), f.Kind())
				if f.Message() != nil {
					shape += " " + string(f.Message().FullName())
				}
				if o := f.ContainingOneof(); o != nil {
					shape += " of " + string(o.Name())
				}
				out[string(f.FullName())] = shape
			}
			msgs(m.Messages())
		}
	}
	f := File_guest_proto
	msgs(f.Messages())
	for i := 0; i < f.Services().Len(); i++ {
		s := f.Services().Get(i)
		for k := 0; k < s.Methods().Len(); k++ {
			m := s.Methods().Get(k)
			out[string(m.FullName())] = fmt.Sprintf("call %s (stream %v) returns %s (stream %v)", m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer())
		}
	}
	return out
}

func TestGolden(t *testing.T) {
	name := fmt.Sprintf("testdata/generation-%d.json", guest.Generation)
	now := describe()
	want := map[string]string{}
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	for k, v := range want {
		if now[k] != v {
			t.Errorf("%s was %q and is %q: that is a new generation", k, v, now[k])
		}
	}
	var added []string
	for k := range now {
		if _, ok := want[k]; !ok {
			added = append(added, k)
		}
	}
	if len(added) == 0 {
		return
	}
	if !*update {
		t.Fatalf("not in %s: %q (see VERSIONING.md)", name, added)
	}
	if t.Failed() {
		t.Fatal("nothing is written while something else changed")
	}
	b, err = json.MarshalIndent(now, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	os.MkdirAll("testdata", 0o755)
	if err := os.WriteFile(name, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
