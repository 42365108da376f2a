// Package files reads and writes files inside the guest for the host: below a
// few allowed folders, never through a link that leaves them, never a device or
// a pipe. It implements guest.Files.
package files
