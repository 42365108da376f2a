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

// qmp sends commands to QEMU's monitor. QEMU is on the machine's side of the
// wall: what it answers is capped and only looked at for success.
func qmp(sock string, timeout time.Duration, commands ...command) error {
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
	for _, cmd := range append([]command{{Execute: "qmp_capabilities"}}, commands...) {
		b, err := json.Marshal(cmd)
		if err != nil {
			return err
		}
		if _, err := c.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("QEMU's monitor: %w", err)
		}
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return fmt.Errorf("QEMU's monitor did not answer %s: %w", cmd.Execute, err)
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
				return fmt.Errorf("QEMU refused %s: %s", cmd.Execute, printable(a.Error.Desc))
			}
			if a.Return != nil {
				break
			}
		}
	}
	return nil
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
		if err := qmp(qmpSock, patience, command{"chardev-send-break", map[string]string{"id": "char-serial"}}); err != nil {
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
