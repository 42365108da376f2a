package netd

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

// kind of a frame that did not pass; the names are those of the status report.
type kind int

const (
	kPass kind = iota
	kARPReply
	kReset     // TCP to anywhere: answered with RST
	kShort     // too short or inconsistent lengths
	kOversize  // longer than the link's frames
	kSourceMAC // not the guest card's own address
	kARP       // ARP for anything but the gateway, or answers nobody asked for
	kIPv6
	kEther // other protocols on Ethernet
	kSpoof // another source address than the guest's
	kFragment
	kUDP
	kICMP
	kIP    // other IP protocols
	kQueue // answers that found the queue to QEMU full
	kExtra // further connections to the QEMU socket
	kinds
)

var kindNames = [kinds]string{"passed", "arp_answered", "tcp_reset", "short", "oversize", "source_mac", "arp", "ipv6", "ethertype", "spoofed", "fragment", "udp", "icmp", "ip_other", "queue_full", "extra_connection"}

const (
	etherLen  = 14
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	protoICMP = 1
	protoTCP  = 6
	protoUDP  = 17

	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// filter decides about frames of the guest. It holds no state of connections.
type filter struct {
	guest, gateway netip.Addr
	gatewayMAC     net.HardwareAddr
	port           uint16
}

// decide says what to do with a frame that came from the guest's card with
// address mac. Only kPass frames may reach the stack; reply is a frame to send
// back to the guest, or nil.
func (f *filter) decide(frame []byte, mac net.HardwareAddr) (k kind, reply []byte) {
	if len(frame) < etherLen {
		return kShort, nil
	}
	if mac != nil && !bytes.Equal(frame[6:12], mac) {
		return kSourceMAC, nil
	}
	switch binary.BigEndian.Uint16(frame[12:14]) {
	case etherARP:
		return f.arp(frame)
	case etherIPv4:
		return f.ipv4(frame)
	case etherIPv6:
		return kIPv6, nil
	}
	return kEther, nil
}

// arp answers "who has the gateway" asked by the guest's own address (or by none, as probes do).
func (f *filter) arp(frame []byte) (kind, []byte) {
	p := frame[etherLen:]
	if len(p) < 28 {
		return kShort, nil
	}
	gw := f.gateway.As4()
	// Ethernet, IPv4, lengths 6 and 4, request
	if !bytes.Equal(p[:8], []byte{0, 1, 8, 0, 6, 4, 0, 1}) || !bytes.Equal(p[24:28], gw[:]) || !bytes.Equal(p[8:14], frame[6:12]) {
		return kARP, nil
	}
	guest := f.guest.As4()
	if !bytes.Equal(p[14:18], guest[:]) && !bytes.Equal(p[14:18], []byte{0, 0, 0, 0}) {
		return kARP, nil
	}
	r := make([]byte, etherLen+28)
	copy(r[0:6], frame[6:12])
	copy(r[6:12], f.gatewayMAC)
	binary.BigEndian.PutUint16(r[12:14], etherARP)
	q := r[etherLen:]
	copy(q[:8], []byte{0, 1, 8, 0, 6, 4, 0, 2})
	copy(q[8:14], f.gatewayMAC)
	copy(q[14:18], gw[:])
	copy(q[18:24], p[8:14])
	copy(q[24:28], p[14:18])
	return kARPReply, r
}

func (f *filter) ipv4(frame []byte) (kind, []byte) {
	p := frame[etherLen:]
	if len(p) < 20 || p[0]>>4 != 4 {
		return kShort, nil
	}
	hl, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:4]))
	if hl < 20 || total < hl || total > len(p) {
		return kShort, nil
	}
	src, dst := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	switch p[9] {
	case protoUDP:
		return kUDP, nil
	case protoICMP:
		return kICMP, nil
	case protoTCP:
	default:
		return kIP, nil
	}
	if src != f.guest {
		return kSpoof, nil
	}
	if binary.BigEndian.Uint16(p[6:8])&0x3fff != 0 {
		return kFragment, nil
	}
	t := p[hl:total]
	if len(t) < 20 || int(t[12]>>4)*4 < 20 || int(t[12]>>4)*4 > len(t) {
		return kShort, nil
	}
	flags := t[13]
	// A connection that the host made: from guestd's port to the gateway. The
	// guest never opens one, so a first SYN does not pass.
	if dst == f.gateway && hl == 20 && binary.BigEndian.Uint16(t[0:2]) == f.port && flags&(flagSYN|flagACK) != flagSYN &&
		bytes.Equal(frame[0:6], f.gatewayMAC) {
		return kPass, nil
	}
	if flags&flagRST != 0 || dst.IsMulticast() || !dst.IsValid() || dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || frame[0]&1 != 0 {
		return kReset, nil
	}
	return kReset, reset(frame, p, t, hl)
}

// reset makes the RST that answers segment t, as if its destination had refused it.
func reset(frame, ip, t []byte, hl int) []byte {
	r := make([]byte, etherLen+20+20)
	copy(r[0:6], frame[6:12])
	copy(r[6:12], frame[0:6])
	binary.BigEndian.PutUint16(r[12:14], etherIPv4)
	h := r[etherLen:]
	h[0] = 0x45
	binary.BigEndian.PutUint16(h[2:4], 40)
	h[6] = 0x40 // do not fragment
	h[8], h[9] = 64, protoTCP
	copy(h[12:16], ip[16:20])
	copy(h[16:20], ip[12:16])
	binary.BigEndian.PutUint16(h[10:12], checksum(h[:20], 0))
	q := h[20:]
	copy(q[0:2], t[2:4])
	copy(q[2:4], t[0:2])
	q[12] = 5 << 4
	if t[13]&flagACK != 0 {
		copy(q[4:8], t[8:12])
		q[13] = flagRST
	} else {
		n := uint32(len(t) - int(t[12]>>4)*4)
		if t[13]&flagSYN != 0 {
			n++
		}
		if t[13]&flagFIN != 0 {
			n++
		}
		binary.BigEndian.PutUint32(q[8:12], binary.BigEndian.Uint32(t[4:8])+n)
		q[13] = flagRST | flagACK
	}
	var pseudo uint32
	for i := 12; i < 20; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(h[i : i+2]))
	}
	pseudo += protoTCP + 20
	binary.BigEndian.PutUint16(q[16:18], checksum(q[:20], pseudo))
	return r
}

// checksum is the Internet checksum of b, whose length is even, on top of sum.
func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i : i+2]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
