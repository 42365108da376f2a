package eventlog

import "glasshouse/backend/event"

// Wanted reports whether a subscription there is now would be handed a transient event
// like e. Work that serves only those who look can be left out while nobody does.
func (l *Log) Wanted(e event.Envelope) bool {
	l.subMu.RLock()
	defer l.subMu.RUnlock()
	for s := range l.subs {
		if s.f.Match(&e) {
			return true
		}
	}
	return false
}
