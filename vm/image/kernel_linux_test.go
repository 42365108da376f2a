package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"strings"
	"testing"
)

func packWith(t *testing.T, tool string, data []byte) []byte {
	t.Helper()
	path, err := findTool(tool)
	if err != nil {
		t.Skipf("no %s on this host", tool)
	}
	var out bytes.Buffer
	must(t, hostRun(context.Background(), path, []string{"-c"}, RunOptions{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: os.Stderr}))
	return out.Bytes()
}

func TestExtractKernel(t *testing.T) {
	kernel := testELF(true)
	pack := map[string]func(*testing.T) []byte{
		"lz4": func(*testing.T) []byte { return lz4Legacy(kernel) },
		"gzip": func(t *testing.T) []byte {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			if _, err := z.Write(kernel); err != nil {
				t.Fatal(err)
			}
			must(t, z.Close())
			return b.Bytes()
		},
		"bzip2": func(t *testing.T) []byte { return packWith(t, "bzip2", kernel) },
		"xz":    func(t *testing.T) []byte { return packWith(t, "xz", kernel) },
		"zstd":  func(t *testing.T) []byte { return packWith(t, "zstd", kernel) },
	}
	for name, f := range pack {
		t.Run(name, func(t *testing.T) {
			got, err := extractKernel(context.Background(), hostRun, testBzImage(f(t), uint32(len(kernel))))
			if err != nil || !bytes.Equal(got, kernel) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(kernel), err)
			}
		})
	}
	t.Run("already an ELF", func(t *testing.T) {
		got, err := extractKernel(context.Background(), hostRun, kernel)
		if err != nil || !bytes.Equal(got, kernel) {
			t.Fatal(err)
		}
	})
}

// TestLZ4AcrossBlocks unpacks more than one block, made by another program where there is one.
func TestLZ4AcrossBlocks(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abc overlapping "), 20<<20/26)
	got, err := unpackLZ4(lz4Legacy(data), int64(len(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("own packer: %d bytes of %d, %v", len(got), len(data), err)
	}
	path, err := findTool("lz4")
	if err != nil {
		t.Skip("no lz4 on this host to compare with")
	}
	var out bytes.Buffer
	must(t, hostRun(context.Background(), path, []string{"-l", "-9", "-c"}, RunOptions{Stdin: bytes.NewReader(data), Stdout: &out}))
	if got, err = unpackLZ4(out.Bytes(), int64(len(data))); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("lz4 -l: %d bytes of %d, %v", len(got), len(data), err)
	}
}

func TestBadKernelsAreRefused(t *testing.T) {
	kernel := testELF(true)
	good := testBzImage(lz4Legacy(kernel), uint32(len(kernel)))
	for name, c := range map[string]struct {
		img  []byte
		says string
	}{
		"empty":        {nil, "no x86 bzImage"},
		"text":         {bytes.Repeat([]byte("hello "), 1000), "no x86 bzImage"},
		"cut short":    {good[:len(good)-100], "cut short"},
		"wrong size":   {testBzImage(lz4Legacy(kernel), uint32(len(kernel)+1)), "unpacked"},
		"huge size":    {testBzImage(lz4Legacy(kernel), 1<<31), "size"},
		"unknown":      {testBzImage([]byte("plain payload"), 13), "unknown way"},
		"no ELF":       {testBzImage(lz4Legacy([]byte("this is no ELF file at all")), 26), "no ELF"},
		"no PVH entry": {testBzImage(lz4Legacy(testELF(false)), uint32(len(kernel))), "PVH"},
	} {
		if _, err := extractKernel(context.Background(), hostRun, c.img); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Any damage ends in an error or in bytes, never in a panic or beyond the claimed size.
	packed := lz4Legacy(kernel)
	for i := range packed {
		bad := bytes.Clone(packed)
		bad[i] ^= 0xff
		if out, err := unpackLZ4(bad, int64(len(kernel))); err == nil && len(out) != len(kernel) {
			t.Fatalf("byte %d: %d bytes without an error", i, len(out))
		}
	}
}
