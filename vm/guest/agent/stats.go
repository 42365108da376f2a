//go:build linux

package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"glasshouse/vm/guest/proto"
)

// meter reads /proc; the CPU share is that since the reading before.
type meter struct {
	disk string

	mu   sync.Mutex
	busy float64 // seconds
	at   time.Time
}

func newMeter(disk string) *meter {
	m := &meter{disk: disk}
	m.busy, m.at = cpuSeconds(), time.Now()
	return m
}

func cpuSeconds() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var sum float64
	for i, w := range strings.Fields(string(line)) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // name, idle, iowait, guest times (counted in user already)
			continue
		}
		n, _ := strconv.ParseFloat(w, 64)
		sum += n
	}
	return sum / 100
}

func (m *meter) read() (*proto.StatsReply, error) {
	r := &proto.StatsReply{}
	busy, now := cpuSeconds(), time.Now()
	m.mu.Lock()
	if d := now.Sub(m.at).Seconds(); d > 0 {
		r.CpuPercent = max(0, 100*(busy-m.busy)/d)
	}
	m.busy, m.at = busy, now
	m.mu.Unlock()

	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("memory cannot be read: %w", err)
	}
	defer f.Close()
	var available int64
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(w[1], 10, 64)
		switch w[0] {
		case "MemTotal:":
			r.MemTotalKib = n
		case "MemAvailable:":
			available = n
		}
	}
	r.MemUsedKib = r.MemTotalKib - available
	var fs syscall.Statfs_t
	if err := syscall.Statfs(m.disk, &fs); err == nil {
		r.DiskTotalKib = int64(fs.Blocks) * fs.Bsize / 1024
		r.DiskUsedKib = int64(fs.Blocks-fs.Bfree) * fs.Bsize / 1024
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if w := strings.Fields(string(b)); len(w) > 0 {
			r.Load1, _ = strconv.ParseFloat(w[0], 64)
		}
	}
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		if w := strings.Fields(string(b)); len(w) > 0 {
			up, _ := strconv.ParseFloat(w[0], 64)
			r.Uptime = int64(up * float64(time.Second))
		}
	}
	if ents, err := os.ReadDir("/proc"); err == nil {
		for _, e := range ents {
			if c := e.Name()[0]; c >= '0' && c <= '9' {
				r.Procs++
			}
		}
	}
	return r, nil
}
