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

// Sizes of answers in pieces.
const (
	pageBytes = 256 << 10
	maxWrite  = 64 << 20
	maxRead   = 8 << 20
)

type filesService struct {
	proto.UnimplementedFilesServer
	f guest.Files
}

// inPages calls send with runs of items that fit a message.
func inPages[G, M any](items []G, convert func(G) M, size func(M) int, send func([]M, bool) error) error {
	var page []M
	n := 0
	first := true
	for _, it := range items {
		m := convert(it)
		k := size(m)
		if len(page) > 0 && n+k > pageBytes {
			if err := send(page, first); err != nil {
				return err
			}
			page, n, first = nil, 0, false
		}
		page, n = append(page, m), n+k
	}
	if len(page) > 0 || first {
		return send(page, first)
	}
	return nil
}

func wantPath(p []byte) error {
	if len(p) == 0 {
		return proto.Invalid(errors.New("the path is empty"))
	}
	if err := proto.CheckPath("path", p); err != nil {
		return proto.Invalid(err)
	}
	return nil
}

func (s *filesService) Stat(ctx context.Context, q *proto.PathRequest) (*proto.FileInfo, error) {
	if err := wantPath(q.Path); err != nil {
		return nil, err
	}
	i, err := s.f.Stat(ctx, string(q.Path))
	if err != nil {
		return nil, err
	}
	return proto.FromInfo(i), nil
}

func (s *filesService) Read(q *proto.ReadRequest, st grpc.ServerStreamingServer[proto.ReadChunk]) error {
	if err := wantPath(q.Path); err != nil {
		return err
	}
	if q.Offset < 0 || q.Limit < 0 || q.Limit > maxRead {
		return proto.Invalid(errors.New("the offset or the limit is out of range"))
	}
	d, err := s.f.Read(st.Context(), string(q.Path), q.Offset, q.Limit)
	if err != nil {
		return err
	}
	m := &proto.ReadChunk{Info: proto.FromInfo(d.Info)}
	for {
		n := min(len(d.Data), proto.MaxChunk)
		m.Data, d.Data = d.Data[:n], d.Data[n:]
		if err := st.Send(m); err != nil {
			return err
		}
		if len(d.Data) == 0 {
			return nil
		}
		m = &proto.ReadChunk{}
	}
}

func (s *filesService) Write(st grpc.ClientStreamingServer[proto.WriteChunk, proto.FileInfo]) error {
	m, err := st.Recv()
	if err != nil {
		return err
	}
	h := m.Header
	if h == nil {
		return proto.Invalid(errors.New("the header is missing"))
	}
	if err := wantPath(h.Path); err != nil {
		return err
	}
	if h.Size < 0 || h.Size > maxWrite {
		return guest.ErrTooLarge
	}
	data := make([]byte, 0, h.Size)
	for {
		if int64(len(data)+len(m.Data)) > h.Size {
			return proto.Invalid(errors.New("more data than announced"))
		}
		data = append(data, m.Data...)
		if m, err = st.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if int64(len(data)) != h.Size {
		return proto.Invalid(errors.New("less data than announced"))
	}
	i, err := s.f.Write(st.Context(), string(h.Path), data, guest.WriteOptions{Mode: h.Mode, IfMatch: h.IfMatch})
	if err != nil {
		return err
	}
	return st.SendAndClose(proto.FromInfo(i))
}

func (s *filesService) Remove(ctx context.Context, q *proto.RemoveRequest) (*proto.RemoveReply, error) {
	if err := wantPath(q.Path); err != nil {
		return nil, err
	}
	return &proto.RemoveReply{}, s.f.Remove(ctx, string(q.Path), q.Recursive)
}

func (s *filesService) Mkdir(ctx context.Context, q *proto.PathRequest) (*proto.MkdirReply, error) {
	if err := wantPath(q.Path); err != nil {
		return nil, err
	}
	return &proto.MkdirReply{}, s.f.Mkdir(ctx, string(q.Path))
}

func (s *filesService) List(q *proto.ListRequest, st grpc.ServerStreamingServer[proto.ListPage]) error {
	if err := wantPath(q.Path); err != nil {
		return err
	}
	entries, more, err := s.f.List(st.Context(), string(q.Path), int(q.Limit))
	if err != nil {
		return err
	}
	return inPages(entries, proto.FromInfo, func(m *proto.FileInfo) int { return len(m.Path) + len(m.Target) + 128 },
		func(page []*proto.FileInfo, first bool) error {
			return st.Send(&proto.ListPage{Entries: page, More: more})
		})
}

func (s *filesService) Glob(q *proto.GlobRequest, st grpc.ServerStreamingServer[proto.GlobPage]) error {
	if err := wantPath(q.Pattern); err != nil {
		return err
	}
	paths, more, err := s.f.Glob(st.Context(), string(q.Pattern), q.All, int(q.Limit))
	if err != nil {
		return err
	}
	return inPages(paths, func(p string) []byte { return []byte(p) }, func(p []byte) int { return len(p) + 8 },
		func(page [][]byte, first bool) error {
			return st.Send(&proto.GlobPage{Paths: page, More: more})
		})
}

func (s *filesService) Search(q *proto.SearchRequest, st grpc.ServerStreamingServer[proto.SearchPage]) error {
	if err := errors.Join(proto.CheckPath("pattern", q.Pattern), proto.CheckPath("path", q.Path), proto.CheckPath("glob", q.Glob)); err != nil {
		return proto.Invalid(err)
	}
	r, err := s.f.Search(st.Context(), guest.SearchQuery{
		Pattern: string(q.Pattern), Literal: q.Literal, IgnoreCase: q.IgnoreCase, Path: string(q.Path), Glob: string(q.Glob), Limit: int(q.Limit),
	})
	if err != nil {
		return err
	}
	return inPages(r.Matches, proto.FromMatch, func(m *proto.Match) int { return len(m.Path) + len(m.Text) + 16 },
		func(page []*proto.Match, first bool) error {
			return st.Send(&proto.SearchPage{Matches: page, More: r.More})
		})
}
