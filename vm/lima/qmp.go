package lima

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// qmp sends one command to QEMU's monitor. QEMU is on the machine's side of the
// wall: what it answers is capped and only looked at for success.
func qmp(sock, command string, timeout time.Duration) error {
	c, err := net.DialTimeout("unix", sock, timeout)
	if err != nil {
		return fmt.Errorf("QEMU's monitor cannot be reached: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	r := bufio.NewReader(io.LimitReader(c, 1<<20))
	if _, err := r.ReadString('\n'); err != nil { // the greeting
		return fmt.Errorf("QEMU's monitor does not greet: %w", err)
	}
	for _, cmd := range []string{"qmp_capabilities", command} {
		b, err := json.Marshal(map[string]string{"execute": cmd})
		if err != nil {
			return err
		}
		if _, err := c.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("QEMU's monitor: %w", err)
		}
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return fmt.Errorf("QEMU's monitor did not answer %s: %w", cmd, err)
			}
			var a struct {
				Return *json.RawMessage `json:"return"`
				Error  *struct {
					Desc string `json:"desc"`
				} `json:"error"`
			}
			if json.Unmarshal(line, &a) != nil {
				continue
			}
			if a.Error != nil {
				return fmt.Errorf("QEMU refused %s: %s", cmd, printable(a.Error.Desc))
			}
			if a.Return != nil {
				break
			}
		}
	}
	return nil
}
