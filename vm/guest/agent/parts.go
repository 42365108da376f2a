package agent

import (
	"context"

	"google.golang.org/grpc"

	"glasshouse/vm/guest/proto"
)

func newParts(ctx context.Context, s *server) (Parts, error) {
	return Parts{}, nil
}

func (s *server) registerParts(g *grpc.Server) {
	if s.parts.Files != nil {
		proto.RegisterFilesServer(g, &filesService{f: s.parts.Files})
	}
	if s.parts.Checkpoints != nil {
		proto.RegisterCheckpointsServer(g, &checkpointsService{k: s.parts.Checkpoints})
	}
	if s.parts.Git != nil {
		proto.RegisterGitServer(g, &gitService{g: s.parts.Git})
	}
	if s.parts.Watch != nil {
		proto.RegisterWatchServer(g, &watchService{watch: s.parts.Watch})
	}
}
