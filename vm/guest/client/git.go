package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Limits of git calls.
const (
	maxRefs    = 20000
	maxRefName = 1024
	maxOverlay = 5000
	maxMessage = 64 << 10
	maxHave    = 20000
	hashesAt   = 4000 // object ids in one message
)

type git struct {
	c *client
	p proto.GitClient
}

func (c *client) Git() guest.Git { return &git{c, proto.NewGitClient(c.cc)} }

func checkImport(req guest.ImportRequest) error {
	if err := proto.CheckHash("commit", req.Commit, true); err != nil {
		return err
	}
	if len(req.Branch) > maxRefName || len(req.AuthorName) > 1000 || len(req.AuthorEmail) > 1000 {
		return errors.New("the branch or the author's name is too long")
	}
	if len(req.Refs) > maxRefs {
		return fmt.Errorf("%d refs; at most %d can be imported", len(req.Refs), maxRefs)
	}
	for n, h := range req.Refs {
		if len(n) > maxRefName {
			return fmt.Errorf("the ref %.60q… has too long a name", n)
		}
		if err := proto.CheckHash("ref "+n, h, false); err != nil {
			return err
		}
	}
	if len(req.Overlay) > maxOverlay {
		return fmt.Errorf("%d files are to be laid over; at most %d can be", len(req.Overlay), maxOverlay)
	}
	for _, o := range req.Overlay {
		if err := checkPath(o.Path); err != nil {
			return err
		}
	}
	return nil
}

func (g *git) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	if err := checkImport(req); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := g.p.Import(ctx)
	if err != nil {
		return g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	err = sendImport(st, req, pack)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says why
		return g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	_, err = st.CloseAndRecv()
	return g.c.wrap(ctx, err, guest.ErrNotFound)
}

func (g *git) Repair(ctx context.Context, req guest.ImportRequest, pack io.Reader) (bool, error) {
	if err := checkImport(req); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := g.p.Repair(ctx)
	if err != nil {
		return false, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	err = sendImport(st, req, pack)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says why
		return false, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	r, err := st.CloseAndRecv()
	return r.GetMade(), g.c.wrap(ctx, err, guest.ErrNotFound)
}

func sendImport(st interface {
	Send(*proto.ImportChunk) error
}, req guest.ImportRequest, pack io.Reader) error {
	err := st.Send(&proto.ImportChunk{Msg: &proto.ImportChunk_Header{Header: &proto.ImportHeader{
		Branch: []byte(req.Branch), Commit: req.Commit, AuthorName: []byte(req.AuthorName), AuthorEmail: []byte(req.AuthorEmail),
	}}})
	if err != nil {
		return err
	}
	names := make([]string, 0, len(req.Refs))
	for n := range req.Refs {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		if err := st.Send(&proto.ImportChunk{Msg: &proto.ImportChunk_Ref{Ref: &proto.Ref{Name: []byte(n), Commit: req.Refs[n]}}}); err != nil {
			return err
		}
	}
	for _, o := range req.Overlay {
		m := &proto.OverlayChunk{Path: []byte(o.Path), Mode: o.Mode, Deleted: o.Deleted}
		data := o.Data
		for {
			n := min(len(data), proto.MaxChunk)
			m.Data, data = data[:n], data[n:]
			m.Last = len(data) == 0
			if err := st.Send(&proto.ImportChunk{Msg: &proto.ImportChunk_Overlay{Overlay: m}}); err != nil {
				return err
			}
			if m.Last {
				break
			}
			m = &proto.OverlayChunk{}
		}
	}
	if pack == nil {
		return nil
	}
	buf := make([]byte, proto.MaxChunk)
	for {
		n, rerr := io.ReadFull(pack, buf)
		if n > 0 {
			if err := st.Send(&proto.ImportChunk{Msg: &proto.ImportChunk_Pack{Pack: buf[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(rerr, io.EOF) || rerr == io.ErrUnexpectedEOF {
			return nil
		}
		if rerr != nil {
			return fmt.Errorf("the pack cannot be read: %w", rerr)
		}
	}
}

func (g *git) Head(ctx context.Context) (guest.HeadInfo, error) {
	m, err := g.p.Head(ctx, &proto.HeadRequest{})
	if err != nil {
		return guest.HeadInfo{}, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	h := guest.HeadInfo{Branch: string(m.Branch), Commit: m.Commit, Clean: m.Clean, Repo: m.Repo}
	if len(m.Branch) > maxRefName {
		return guest.HeadInfo{}, errors.New("guestd sent too long a branch name")
	}
	if err := proto.CheckHash("HEAD", h.Commit, true); err != nil {
		return guest.HeadInfo{}, fmt.Errorf("guestd's answer is broken: %w", err)
	}
	return h, nil
}

func (g *git) Candidate(ctx context.Context, base, message string) (guest.Candidate, error) {
	if err := proto.CheckHash("base", base, true); err != nil {
		return guest.Candidate{}, err
	}
	if len(message) > maxMessage {
		return guest.Candidate{}, fmt.Errorf("%w: the commit message has %d bytes", guest.ErrTooLarge, len(message))
	}
	m, err := g.p.Candidate(ctx, &proto.CandidateRequest{Base: base, Message: []byte(message)})
	if err != nil {
		return guest.Candidate{}, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	k := guest.Candidate{Commit: m.Commit, Tree: m.Tree, Own: m.Own}
	if err := errors.Join(proto.CheckHash("commit", k.Commit, false), proto.CheckHash("tree", k.Tree, false)); err != nil {
		return guest.Candidate{}, fmt.Errorf("guestd's answer is broken: %w", err)
	}
	return k, nil
}

func (g *git) Export(ctx context.Context, want, have []string, maxBytes int64) (io.ReadCloser, error) {
	if len(want) == 0 {
		return nil, errors.New("nothing is wanted")
	}
	if len(want) > maxHave || len(have) > maxHave {
		return nil, fmt.Errorf("too many object ids; at most %d", maxHave)
	}
	if maxBytes <= 0 {
		return nil, errors.New("the pack's limit is missing")
	}
	for _, h := range append(append([]string(nil), want...), have...) {
		if err := proto.CheckHash("object", h, false); err != nil {
			return nil, err
		}
	}
	sctx, cancel := context.WithCancel(ctx)
	st, err := g.p.Export(sctx)
	if err != nil {
		cancel()
		return nil, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	for len(want)+len(have) > 0 {
		m := &proto.ExportRequest{MaxBytes: maxBytes}
		n := min(len(want), hashesAt)
		m.Want, want = want[:n], want[n:]
		n = min(len(have), hashesAt)
		m.Have, have = have[:n], have[n:]
		if err = st.Send(m); err != nil {
			break
		}
	}
	if err == nil {
		err = st.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, g.c.wrap(ctx, err, guest.ErrNotFound)
	}
	return &packReader{c: g.c, ctx: sctx, cancel: cancel, st: st, left: maxBytes}, nil
}

// packReader reads an exported pack, never more than was asked for.
type packReader struct {
	c      *client
	ctx    context.Context
	cancel context.CancelFunc
	st     grpc.BidiStreamingClient[proto.ExportRequest, proto.PackChunk]
	buf    []byte
	left   int64
	err    error
}

func (r *packReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		m, err := r.st.Recv()
		if errors.Is(err, io.EOF) {
			r.err = io.EOF
			continue
		}
		if err != nil {
			r.err = r.c.wrap(r.ctx, err, guest.ErrNotFound)
			continue
		}
		if r.left -= int64(len(m.Data)); r.left < 0 {
			r.err = fmt.Errorf("%w: the guest's pack is larger than was asked for", guest.ErrTooLarge)
			r.cancel()
			continue
		}
		r.buf = m.Data
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *packReader) Close() error {
	r.cancel()
	return nil
}
