package lima

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/vm/netd"
)

// The test binary plays several programs: Glasshouse's own, which Lima starts as
// QEMU's wrapper and the driver as the network process, and, under their names,
// limactl, qemu-img and QEMU (see fake_test.go).
func TestMain(m *testing.M) {
	var err error
	switch filepath.Base(os.Args[0]) {
	case "limactl":
		err = fakeLimactl(os.Args[1:])
	case "qemu-img":
		err = fakeQemuImg(os.Args[1:])
	case qemuName():
		err = fakeQEMU(os.Args[1:])
	default:
		word := ""
		if len(os.Args) > 1 {
			word = os.Args[1]
		}
		switch word {
		case "netd":
			err = netd.Main(context.Background(), os.Args[2:])
		case "qemu":
			err = QEMUMain(os.Args[2:])
		default:
			os.Exit(m.Run())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
