//go:build linux

package agent

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Limits of an import.
const (
	maxRefs         = 20000
	maxOverlayFiles = 5000
	maxOverlayBytes = 256 << 20
	maxHave         = 40000
)

type gitService struct {
	proto.UnimplementedGitServer
	g guest.Git
}

func (s *gitService) Import(st grpc.ClientStreamingServer[proto.ImportChunk, proto.ImportReply]) error {
	req, pack, err := readImport(st)
	if err != nil {
		return err
	}
	if err := s.g.Import(st.Context(), req, pack); err != nil {
		return err
	}
	return st.SendAndClose(&proto.ImportReply{})
}

func (s *gitService) Repair(st grpc.ClientStreamingServer[proto.ImportChunk, proto.RepairReply]) error {
	req, pack, err := readImport(st)
	if err != nil {
		return err
	}
	if len(req.Overlay) > 0 {
		return proto.Invalid(errors.New("a repair lays no files over"))
	}
	made, err := s.g.Repair(st.Context(), req, pack)
	if err != nil {
		return err
	}
	return st.SendAndClose(&proto.RepairReply{Made: made})
}

// importStream is the host's side of an import.
type importStream interface {
	Recv() (*proto.ImportChunk, error)
}

// readImport reads all of an import up to its pack.
func readImport(st importStream) (req guest.ImportRequest, in *importReader, err error) {
	m, err := st.Recv()
	if err != nil {
		return req, nil, err
	}
	h := m.GetHeader()
	if h == nil {
		return req, nil, proto.Invalid(errors.New("the header is missing"))
	}
	if err := proto.CheckHash("commit", h.Commit, true); err != nil {
		return req, nil, proto.Invalid(err)
	}
	req = guest.ImportRequest{
		Branch: string(h.Branch), Commit: h.Commit, AuthorName: string(h.AuthorName), AuthorEmail: string(h.AuthorEmail), Refs: map[string]string{},
	}
	in = &importReader{st: st}
	total, open := 0, false
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			in.err = io.EOF
			break
		}
		if err != nil {
			return req, nil, err
		}
		if r := m.GetRef(); r != nil {
			if err := errors.Join(proto.CheckHash("ref", r.Commit, false), proto.CheckPath("ref", r.Name)); err != nil {
				return req, nil, proto.Invalid(err)
			}
			if len(req.Refs) >= maxRefs {
				return req, nil, proto.Invalid(errors.New("too many refs"))
			}
			req.Refs[string(r.Name)] = r.Commit
			continue
		}
		if o := m.GetOverlay(); o != nil {
			if !open {
				if err := wantPath(o.Path); err != nil {
					return req, nil, err
				}
				if len(req.Overlay) >= maxOverlayFiles {
					return req, nil, proto.Invalid(errors.New("too many files to lay over"))
				}
				req.Overlay = append(req.Overlay, guest.OverlayFile{Path: string(o.Path), Mode: o.Mode, Deleted: o.Deleted})
			}
			f := &req.Overlay[len(req.Overlay)-1]
			if total += len(o.Data); total > maxOverlayBytes {
				return req, nil, guest.ErrTooLarge
			}
			f.Data = append(f.Data, o.Data...)
			open = !o.Last
			continue
		}
		if m.GetMsg() == nil || m.GetHeader() != nil {
			return req, nil, proto.Invalid(errors.New("an import holds something unknown"))
		}
		in.buf = m.GetPack()
		break
	}
	if open {
		return req, nil, proto.Invalid(errors.New("a file to lay over is cut short"))
	}
	return req, in, nil
}

// importReader is the pack at the end of an import.
type importReader struct {
	st  importStream
	buf []byte
	err error
}

func (r *importReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		m, err := r.st.Recv()
		if err != nil {
			r.err = err // io.EOF is the pack's end
			continue
		}
		pack, ok := m.Msg.(*proto.ImportChunk_Pack)
		if !ok {
			r.err = errors.New("something else follows the pack's start")
			continue
		}
		r.buf = pack.Pack
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (s *gitService) Head(ctx context.Context, _ *proto.HeadRequest) (*proto.HeadReply, error) {
	h, err := s.g.Head(ctx)
	if err != nil {
		return nil, err
	}
	return &proto.HeadReply{Branch: []byte(h.Branch), Commit: h.Commit, Clean: h.Clean, Repo: h.Repo}, nil
}

func (s *gitService) Candidate(ctx context.Context, q *proto.CandidateRequest) (*proto.CandidateReply, error) {
	if err := proto.CheckHash("base", q.Base, true); err != nil {
		return nil, proto.Invalid(err)
	}
	c, err := s.g.Candidate(ctx, q.Base, string(q.Message))
	if err != nil {
		return nil, err
	}
	return &proto.CandidateReply{Commit: c.Commit, Tree: c.Tree, Own: c.Own}, nil
}

func (s *gitService) Export(st grpc.BidiStreamingServer[proto.ExportRequest, proto.PackChunk]) error {
	var want, have []string
	var most int64
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		want, have, most = append(want, m.Want...), append(have, m.Have...), m.MaxBytes
		if len(want)+len(have) > maxHave {
			return proto.Invalid(errors.New("too many object ids"))
		}
		for _, l := range [][]string{m.Want, m.Have} {
			for _, h := range l {
				if err := proto.CheckHash("object", h, false); err != nil {
					return proto.Invalid(err)
				}
			}
		}
	}
	if len(want) == 0 || most <= 0 {
		return proto.Invalid(errors.New("nothing is wanted, or the limit is missing"))
	}
	r, err := s.g.Export(st.Context(), want, have, most)
	if err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, proto.MaxChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := st.Send(&proto.PackChunk{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
