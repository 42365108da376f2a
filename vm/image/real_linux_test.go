package image

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"
)

// TestBuildReal builds the whole image into the folder that GLASSHOUSE_BUILD_IMAGE names, with the guestd that
// GLASSHOUSE_GUESTD names. It needs the package registries and a minute or two.
func TestBuildReal(t *testing.T) {
	cache := os.Getenv("GLASSHOUSE_BUILD_IMAGE")
	if cache == "" {
		t.Skip("set GLASSHOUSE_BUILD_IMAGE=FOLDER to build the real image there")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	start := time.Now()
	var last Phase
	img, err := Build(ctx, Options{CacheDir: cache, Run: hostRun, Guestd: os.Getenv("GLASSHOUSE_GUESTD")}, func(p Progress) {
		if p.Phase != last || p.Total != 0 {
			last = p.Phase
			t.Logf("%6.1fs %d/%d %s %d/%d %s", time.Since(start).Seconds(), p.Step, p.Steps, p.Phase, p.Done, p.Total, p.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("image %s\ninitrd %s\ntree %d files, %d bytes; qcow2 %d bytes; phases %v", img.Dir, img.Initrd,
		img.Manifest.TreeFiles, img.Manifest.TreeBytes, img.Manifest.QCOW2Bytes, img.Manifest.BuildMillis)
}
