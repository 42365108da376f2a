package browser

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"strings"
	"testing"
)

func picture(t *testing.T, w, h int) []byte {
	var b bytes.Buffer
	m := image.NewGray(image.Rect(0, 0, w, h))
	m.SetGray(w/2, h/2, color.Gray{200})
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// frameHeader is where a picture says its kind and size.
func frameHeader(t *testing.T, b []byte) int {
	i := bytes.Index(b, []byte{0xff, 0xc0, 0, 11})
	if i < 0 {
		t.Fatal("the encoder wrote no such header")
	}
	return i
}

func TestCheckJPEG(t *testing.T) {
	good := picture(t, 1280, 800)
	if w, h, err := CheckJPEG(good); err != nil || w != 1280 || h != 800 {
		t.Fatal(w, h, err)
	}
	// Other parts, a comment and filling in front of the header change nothing.
	more := append([]byte{0xff, 0xd8, 0xff, 0xfe, 0, 6, 0xff, 0xc2, 0, 0, 0xff}, good[2:]...)
	if _, _, err := CheckJPEG(more); err != nil {
		t.Error(err)
	}
	with := func(edit func(b []byte, at int)) []byte {
		b := bytes.Clone(good)
		edit(b, frameHeader(t, b))
		return b
	}
	size := func(w, h uint16) []byte {
		return with(func(b []byte, at int) {
			binary.BigEndian.PutUint16(b[at+5:], h)
			binary.BigEndian.PutUint16(b[at+7:], w)
		})
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "a page": []byte("<html>"), "a page behind a begin": []byte("\xff\xd8\xff<script>"), "cut": good[:10],
		"no width": size(0, 10), "no height": size(10, 0), "too wide": size(8193, 1), "too high": size(1, 8193), "too large in all": size(8192, 8192),
		"more than a screen can be": size(4097, 4096), "many scans": with(func(b []byte, at int) { b[at+1] = 0xc2 }),
		"too many bytes": append(bytes.Clone(good), make([]byte, MaxFrameBytes)...),
	} {
		if w, h, err := CheckJPEG(b); err == nil || w != 0 || h != 0 {
			t.Errorf("%s: %d x %d %v", name, w, h, err)
		}
	}
	if _, _, err := CheckJPEG(size(4096, 4096)); err != nil {
		t.Error(err)
	}
	if _, _, err := CheckJPEG(with(func(b []byte, at int) { b[at+1] = 0xc2 })); err == nil || !strings.Contains(err.Error(), "scans") {
		t.Error(err)
	}
}
