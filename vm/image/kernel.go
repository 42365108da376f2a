package image

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxKernel caps the unpacked kernel; Debian's is about 60 MB.
const maxKernel = 512 << 20

// extractKernel takes the ELF kernel out of an x86 bzImage. The virtual machine starts that through its PVH entry,
// which saves the slow unpacking inside the guest. xz and zstd payloads are unpacked by the host's programs.
func extractKernel(ctx context.Context, run RunFunc, bzImage []byte) ([]byte, error) {
	if bytes.HasPrefix(bzImage, []byte(elf.ELFMAG)) {
		return bzImage, checkKernel(bzImage)
	}
	payload, err := kernelPayload(bzImage)
	if err != nil {
		return nil, err
	}
	out, err := unpackKernel(ctx, run, payload)
	if err != nil {
		return nil, fmt.Errorf("unpack the kernel: %w", err)
	}
	return out, checkKernel(out)
}

// kernelPayload finds the compressed kernel by the boot protocol's header fields (version 2.08 and later).
func kernelPayload(img []byte) ([]byte, error) {
	const (
		setupSects    = 0x1f1
		magic         = 0x202
		version       = 0x206
		payloadOffset = 0x248
		payloadLength = 0x24c
	)
	if len(img) < 0x250 || string(img[magic:magic+4]) != "HdrS" {
		return nil, errors.New("the kernel file is no x86 bzImage")
	}
	if v := binary.LittleEndian.Uint16(img[version:]); v < 0x208 {
		return nil, fmt.Errorf("the kernel file's boot protocol %#x is older than 0x208", v)
	}
	sects := int64(img[setupSects])
	if sects == 0 {
		sects = 4
	}
	start := (sects+1)*512 + int64(binary.LittleEndian.Uint32(img[payloadOffset:]))
	length := int64(binary.LittleEndian.Uint32(img[payloadLength:]))
	if length < 8 || start+length > int64(len(img)) {
		return nil, errors.New("the kernel file is cut short: its payload lies beyond its end")
	}
	return img[start : start+length], nil
}

func unpackKernel(ctx context.Context, run RunFunc, p []byte) ([]byte, error) {
	// Behind every payload but gzip's own stand four bytes with the unpacked size.
	body, size := p[:len(p)-4], int64(binary.LittleEndian.Uint32(p[len(p)-4:]))
	has := func(magic string) bool { return bytes.HasPrefix(p, []byte(magic)) }
	switch {
	case has("\x02\x21\x4c\x18"):
		return unpackLZ4(body, size)
	case has("\x1f\x8b"):
		r, err := gzip.NewReader(bytes.NewReader(p))
		if err != nil {
			return nil, err
		}
		r.Multistream(false)
		return readKernel(r)
	case has("BZh"):
		return readKernel(bzip2.NewReader(bytes.NewReader(body)))
	case has("\xfd7zXZ\x00"):
		return runUnpack(ctx, run, "xz", []string{"-dc"}, body)
	case has("\x28\xb5\x2f\xfd"):
		return runUnpack(ctx, run, "zstd", []string{"-dcq"}, body)
	}
	return nil, fmt.Errorf("the kernel is packed in an unknown way (it starts with % x)", p[:6])
}

func readKernel(r io.Reader) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, maxKernel+1))
	if err == nil && len(out) > maxKernel {
		err = errors.New("the unpacked kernel is too large")
	}
	return out, err
}

func runUnpack(ctx context.Context, run RunFunc, tool string, args []string, body []byte) ([]byte, error) {
	path, err := findTool(tool)
	if err != nil {
		return nil, err
	}
	var out, errs limitedBuffer
	out.max, errs.max = maxKernel, 4096
	err = run(ctx, path, args, RunOptions{Stdin: bytes.NewReader(body), Stdout: &out, Stderr: &errs})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", tool, err, errs.Bytes())
	}
	return out.Bytes(), nil
}

// unpackLZ4 reads the legacy LZ4 frame that the kernel build writes: a magic number, then blocks that each unpack to
// at most 8 MiB and know nothing of one another.
func unpackLZ4(p []byte, size int64) ([]byte, error) {
	if size <= 0 || size > maxKernel {
		return nil, fmt.Errorf("the kernel claims an unpacked size of %d bytes", size)
	}
	const block = 8 << 20
	out := make([]byte, 0, size)
	for p = p[4:]; len(p) >= 4; {
		n := int64(binary.LittleEndian.Uint32(p))
		p = p[4:]
		if n == 0x184c2102 { // another frame follows
			continue
		}
		if n > int64(len(p)) {
			return nil, errors.New("lz4: a block is cut short")
		}
		start := len(out)
		var err error
		if out, err = lz4Block(out, p[:n], start+block); err != nil {
			return nil, err
		}
		p = p[n:]
	}
	if int64(len(out)) != size {
		return nil, fmt.Errorf("lz4: unpacked %d bytes where the kernel says %d", len(out), size)
	}
	return out, nil
}

var errLZ4 = errors.New("lz4: a block is damaged")

// lz4Block appends the unpacked block to out, which may not grow past max.
func lz4Block(out, src []byte, max int) ([]byte, error) {
	start := len(out)
	length := func(n int) (int, error) {
		for n >= 15 {
			if len(src) == 0 || n > max {
				return 0, errLZ4
			}
			b := src[0]
			src = src[1:]
			n += int(b)
			if b != 255 {
				break
			}
		}
		return n, nil
	}
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		n, err := length(int(token >> 4))
		if err != nil || n > len(src) || len(out)+n > max {
			return nil, errLZ4
		}
		out = append(out, src[:n]...)
		src = src[n:]
		if len(src) == 0 {
			return out, nil // the last sequence is literals alone
		}
		if len(src) < 2 {
			return nil, errLZ4
		}
		from := len(out) - int(binary.LittleEndian.Uint16(src))
		src = src[2:]
		n, err = length(int(token & 15))
		n += 4
		if err != nil || from < start || from >= len(out) || len(out)+n > max {
			return nil, errLZ4
		}
		for ; n > 0; n-- { // byte by byte: the copy may overlap itself
			out = append(out, out[from])
			from++
		}
	}
	return out, nil
}

// checkKernel wants a 64-bit x86 ELF with the note that gives QEMU its PVH entry.
func checkKernel(img []byte) error {
	f, err := elf.NewFile(bytes.NewReader(img))
	if err != nil {
		return fmt.Errorf("the unpacked kernel is no ELF file: %w", err)
	}
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("the unpacked kernel is for %v", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(io.LimitReader(p.Open(), 1<<20))
		if err != nil {
			return fmt.Errorf("the unpacked kernel is cut short: %w", err)
		}
		if hasPVHNote(notes) {
			return nil
		}
	}
	return errors.New("the unpacked kernel has no PVH entry (no Xen note of type 18), so QEMU cannot start it directly")
}

func hasPVHNote(b []byte) bool {
	for len(b) >= 12 {
		name := int64(binary.LittleEndian.Uint32(b))
		desc := int64(binary.LittleEndian.Uint32(b[4:]))
		kind := binary.LittleEndian.Uint32(b[8:])
		end := 12 + (name+3)&^3 + (desc+3)&^3
		if end > int64(len(b)) {
			return false
		}
		if kind == 18 && string(b[12:12+name]) == "Xen\x00" {
			return true
		}
		b = b[end:]
	}
	return false
}
