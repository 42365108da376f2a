package lima

import (
	"context"
	"fmt"
	"os"
	"testing"

	"glasshouse/vm/netd"
)

// The test binary plays Glasshouse's own program: Lima starts it as the wrapper
// of QEMU, the driver starts it as the network process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case "netd":
			err = netd.Main(context.Background(), os.Args[2:])
		case "qemu":
			err = QEMUMain(os.Args[2:])
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
