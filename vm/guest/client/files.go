package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Limits of file calls.
const (
	maxRead    = 8 << 20
	maxWrite   = 64 << 20
	maxEntries = 10000
	maxMatches = 2000
)

type files struct {
	c *client
	p proto.FilesClient
}

func (c *client) Files() guest.Files { return &files{c, proto.NewFilesClient(c.cc)} }

func checkPath(path string) error {
	if path == "" {
		return fmt.Errorf("%w: it is empty", guest.ErrRefused)
	}
	if err := proto.CheckPath("path", []byte(path)); err != nil {
		return fmt.Errorf("%w: %w", guest.ErrRefused, err)
	}
	return nil
}

func (f *files) err(ctx context.Context, err error) error {
	return f.c.wrap(ctx, err, guest.ErrNotFound)
}

func (f *files) Stat(ctx context.Context, path string) (guest.FileInfo, error) {
	if err := checkPath(path); err != nil {
		return guest.FileInfo{}, err
	}
	m, err := f.p.Stat(ctx, &proto.PathRequest{Path: []byte(path)})
	if err != nil {
		return guest.FileInfo{}, f.err(ctx, err)
	}
	return m.Info()
}

func (f *files) Read(ctx context.Context, path string, offset, limit int64) (guest.FileData, error) {
	d := guest.FileData{Offset: offset}
	if err := checkPath(path); err != nil {
		return d, err
	}
	if offset < 0 || limit < 0 || limit > maxRead {
		return d, fmt.Errorf("%w: read %d bytes at %d; at most %d at once", guest.ErrTooLarge, limit, offset, maxRead)
	}
	first := true
	err := pages(f.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.ReadChunk], error) {
		return f.p.Read(ctx, &proto.ReadRequest{Path: []byte(path), Offset: offset, Limit: limit})
	}, guest.ErrNotFound, func(m *proto.ReadChunk) (err error) {
		if first {
			first = false
			if m.Info == nil {
				return errors.New("guestd sent a file without its description")
			}
			if d.Info, err = m.Info.Info(); err != nil {
				return err
			}
		}
		if int64(len(d.Data)+len(m.Data)) > limit {
			return errTooMuch
		}
		d.Data = append(d.Data, m.Data...)
		return nil
	})
	if err == nil && first {
		err = errors.New("guestd sent no file")
	}
	return d, err
}

func (f *files) Write(ctx context.Context, path string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	if err := checkPath(path); err != nil {
		return guest.FileInfo{}, err
	}
	if len(data) > maxWrite {
		return guest.FileInfo{}, fmt.Errorf("%w: %d bytes; at most %d can be written at once", guest.ErrTooLarge, len(data), maxWrite)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := f.p.Write(ctx)
	if err != nil {
		return guest.FileInfo{}, f.err(ctx, err)
	}
	m := &proto.WriteChunk{Header: &proto.WriteHeader{Path: []byte(path), Mode: opt.Mode, IfMatch: opt.IfMatch, Size: int64(len(data))}}
	for {
		n := min(len(data), proto.MaxChunk)
		m.Data, data = data[:n], data[n:]
		if err := st.Send(m); errors.Is(err, io.EOF) {
			break // the answer says why
		} else if err != nil {
			return guest.FileInfo{}, f.err(ctx, err)
		}
		if len(data) == 0 {
			break
		}
		m = &proto.WriteChunk{}
	}
	r, err := st.CloseAndRecv()
	if err != nil {
		return guest.FileInfo{}, f.err(ctx, err)
	}
	return r.Info()
}

func (f *files) Remove(ctx context.Context, path string, recursive bool) error {
	if err := checkPath(path); err != nil {
		return err
	}
	_, err := f.p.Remove(ctx, &proto.RemoveRequest{Path: []byte(path), Recursive: recursive})
	return f.err(ctx, err)
}

func (f *files) Mkdir(ctx context.Context, path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	_, err := f.p.Mkdir(ctx, &proto.PathRequest{Path: []byte(path)})
	return f.err(ctx, err)
}

func bound(limit, most int) int {
	if limit <= 0 || limit > most {
		return most
	}
	return limit
}

func (f *files) List(ctx context.Context, path string, limit int) (entries []guest.FileInfo, more bool, err error) {
	if err := checkPath(path); err != nil {
		return nil, false, err
	}
	limit = bound(limit, maxEntries)
	err = pages(f.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.ListPage], error) {
		return f.p.List(ctx, &proto.ListRequest{Path: []byte(path), Limit: int32(limit)})
	}, guest.ErrNotFound, func(m *proto.ListPage) (err error) {
		more = more || m.More
		entries, err = addUpTo(entries, limit, m.Entries, (*proto.FileInfo).Info)
		return err
	})
	return entries, more, err
}

func (f *files) Glob(ctx context.Context, pattern string, all bool, limit int) (paths []string, more bool, err error) {
	if err := checkPath(pattern); err != nil {
		return nil, false, err
	}
	limit = bound(limit, maxEntries)
	err = pages(f.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.GlobPage], error) {
		return f.p.Glob(ctx, &proto.GlobRequest{Pattern: []byte(pattern), All: all, Limit: int32(limit)})
	}, guest.ErrNotFound, func(m *proto.GlobPage) (err error) {
		more = more || m.More
		paths, err = addUpTo(paths, limit, m.Paths, name)
		return err
	})
	return paths, more, err
}

// name reads a file name the guest sent.
func name(b []byte) (string, error) {
	if err := proto.CheckPath("path", b); err != nil {
		return "", fmt.Errorf("the guest's answer is broken: %w", err)
	}
	return string(b), nil
}

func (f *files) Search(ctx context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	var r guest.SearchResult
	if q.Path == "" {
		q.Path = guest.Workspace
	}
	if err := errors.Join(checkPath(q.Path), checkPath(q.Pattern), proto.CheckPath("glob", []byte(q.Glob))); err != nil {
		return r, err
	}
	if q.Limit <= 0 {
		q.Limit = 200
	}
	q.Limit = min(q.Limit, maxMatches)
	err := pages(f.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.SearchPage], error) {
		return f.p.Search(ctx, &proto.SearchRequest{
			Pattern: []byte(q.Pattern), Literal: q.Literal, IgnoreCase: q.IgnoreCase, Path: []byte(q.Path), Glob: []byte(q.Glob), Limit: int32(q.Limit),
		})
	}, guest.ErrNotFound, func(m *proto.SearchPage) (err error) {
		r.More = r.More || m.More
		r.Matches, err = addUpTo(r.Matches, q.Limit, m.Matches, (*proto.Match).Found)
		return err
	})
	return r, err
}
