package lima

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// command is one request to QEMU's monitor.
type command struct {
	Execute   string            `json:"execute"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// qmp sends commands to QEMU's monitor and returns the answer to the last. QEMU is on
// the machine's side of the wall: what it answers is capped, and hostile.
func qmp(sock string, timeout time.Duration, commands ...command) (answer json.RawMessage, err error) {
	c, err := net.DialTimeout("unix", sock, timeout)
	if err != nil {
		return nil, fmt.Errorf("QEMU's monitor cannot be reached: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	r := bufio.NewReader(io.LimitReader(c, 1<<20))
	if _, err := r.ReadString('\n'); err != nil { // the greeting
		return nil, fmt.Errorf("QEMU's monitor does not greet: %w", err)
	}
	for _, cmd := range append([]command{{Execute: "qmp_capabilities"}}, commands...) {
		b, err := json.Marshal(cmd)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(append(b, '\n')); err != nil {
			return nil, fmt.Errorf("QEMU's monitor: %w", err)
		}
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return nil, fmt.Errorf("QEMU's monitor did not answer %s: %w", cmd.Execute, err)
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
				return nil, fmt.Errorf("QEMU refused %s: %s", cmd.Execute, printable(a.Error.Desc))
			}
			if a.Return != nil {
				answer = *a.Return
				break
			}
		}
	}
	return answer, nil
}

// diskUse asks how often the guest has read from its disks and written to them.
func diskUse(sock string) (ops uint64, err error) {
	b, err := qmp(sock, 2*time.Second, command{Execute: "query-blockstats"})
	if err != nil {
		return 0, err
	}
	var disks []struct {
		Stats struct {
			Read  uint64 `json:"rd_operations"`
			Write uint64 `json:"wr_operations"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(b, &disks); err != nil {
		return 0, fmt.Errorf("what QEMU says of its disks is not understood: %w", err)
	}
	for _, d := range disks {
		ops += d.Stats.Read + d.Stats.Write
	}
	return ops, nil
}

// powerOff asks the guest's kernel, not its programs, to write everything to
// disk, to stop writing, and to switch off: the magic keys S, U and O, each
// after a break on the serial console. It helps when guestd does not answer.
// A guest can have it disabled. QEMU may take patience for each answer: one that is slow
// on a busy host must not cost the guest what it had not written yet.
func powerOff(qmpSock, serialSock string, patience time.Duration) error {
	c, err := net.DialTimeout("unix", serialSock, patience)
	if err != nil {
		return fmt.Errorf("the machine's console cannot be reached: %w", err)
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }() // ends with c
	for _, key := range "suo" {
		if _, err := qmp(qmpSock, patience, command{"chardev-send-break", map[string]string{"id": "char-serial"}}); err != nil {
			return err
		}
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte(string(key))); err != nil {
			return fmt.Errorf("the machine's console: %w", err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	return nil
}
