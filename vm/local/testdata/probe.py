# One attempt to see or reach what lies outside of a machine. Run outside, each
# must succeed ("REACHED"): that shows that the attempt is a real one. Run
# inside, none may.
import ctypes, errno, fcntl, os, platform, signal, socket, stat, struct, sys, termios, time

libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == "aarch64"
NR = {"add_key": 217 if ARM else 248, "io_uring_setup": 425, "perf_event_open": 241 if ARM else 298,
      "userfaultfd": 282 if ARM else 323, "bpf": 280 if ARM else 321, "open_by_handle_at": 265 if ARM else 304}

class Shut(Exception):
    pass

def syscall(name, *args):
    r = libc.syscall(NR[name], *args)
    return r, ctypes.get_errno()

def read(path, n=1 << 16):
    with open(path, "rb") as f:
        return f.read(n)

def pids():
    return [int(d) for d in os.listdir("/proc") if d.isdigit()]

def host_pid(pid):
    os.kill(int(pid), 0)
    return "signalled %s" % pid

def environment_of(pid, mark):
    if mark.encode() in read("/proc/%s/environ" % pid):
        return "found"
    raise Shut("not in it")

def any_environment(mark):
    for p in pids():
        try:
            if mark.encode() in read("/proc/%d/environ" % p):
                return "in process %d" % p
        except OSError:
            pass
    raise Shut("in none of %d" % len(pids()))

def any_cmdline(mark):
    for p in pids():
        try:
            if p != os.getpid() and p != os.getppid() and mark.replace("\\0", "\0").encode() in read("/proc/%d/cmdline" % p):
                return "process %d" % p
        except OSError:
            pass
    raise Shut("in none of %d" % len(pids()))

def file(path, mark):
    if mark.encode() in read(path):
        return "read"
    raise Shut("something else is there")

def through_roots(path, mark):
    tries = ["/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../..", "/proc/thread-self/root"]
    tries += ["/proc/%d/root" % p for p in pids()] + ["/proc/%d/cwd/../../../../../.." % p for p in pids()]
    for t in tries:
        try:
            if mark.encode() in read(t + path):
                return t
        except OSError:
            pass
    raise Shut("through none of %d" % len(tries))

def folder(path):
    names = os.listdir(path)
    if names:
        return " ".join(names)
    raise Shut("empty")

def write_access(path):
    os.close(os.open(path, os.O_WRONLY))
    return "opened"

def unix_socket(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path.replace("@", "\0", 1))
    return "connected"

def port(n):
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, int(n)), timeout=60).close()
            return "connected"
        except OSError as e:
            last = e
    raise last

def mount():
    d = "/tmp/probe-mount"
    os.makedirs(d, exist_ok=True)
    if libc.mount(b"none", d.encode(), b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    libc.umount2(d.encode(), 2)
    return "mounted"

def remount(path):
    if libc.mount(b"none", path.encode(), None, 32 | 4096, None) != 0:  # remount, bind, writable
        raise OSError(ctypes.get_errno(), "remount")
    return "writable"

def mknod():
    p = "/tmp/probe-node-%d" % os.getpid()
    os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 11))  # the kernel's log
    try:
        os.close(os.open(p, os.O_RDONLY | os.O_NONBLOCK))
    finally:
        os.unlink(p)
    return "made and opened"

def setuid():
    os.setgroups([])
    os.setuid(0)
    return "uid %d" % os.getuid()

def own_for_root():
    p = "/tmp/probe-own-%d" % os.getpid()
    open(p, "w").close()
    try:
        os.chown(p, 0, 0)
        os.chmod(p, 0o4755)
    finally:
        os.unlink(p)
    return "a setuid file of root"

def ptrace(name):
    for p in pids():
        try:
            line = read("/proc/%d/cmdline" % p)
        except OSError:
            continue
        if p == os.getpid() or p == os.getppid() or name.encode() not in line.split(b"\0")[0]:
            continue
        if libc.ptrace(16, p, None, None) == 0:  # attach
            os.waitpid(p, 0x40000000)
            libc.ptrace(17, p, None, None)
            return "attached to %d" % p
        last = os.strerror(ctypes.get_errno())
        if ctypes.get_errno() == errno.EPERM:
            try:
                os.close(os.open("/proc/%d/mem" % p, os.O_RDWR))
                return "memory of %d" % p
            except OSError:
                pass
    raise Shut("nothing named %s can be traced" % name)

def kill(name):
    hit = 0
    for p in pids():
        try:
            line = read("/proc/%d/cmdline" % p)
        except OSError:
            continue
        if p not in (os.getpid(), os.getppid()) and name.encode() in line.split(b"\0")[0]:
            try:
                os.kill(p, signal.SIGKILL)
                hit = p
            except OSError:
                pass
    for _ in range(6000):
        if not hit or not os.path.exists("/proc/%d" % hit) or b"Z" == read("/proc/%d/stat" % hit).rsplit(b")", 1)[1].split()[0]:
            break
        time.sleep(0.01)
    else:
        raise Shut("%d does not mind" % hit)
    if hit:
        return "killed %d" % hit
    raise Shut("nothing named %s" % name)

def tiocsti(request):
    master, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            fcntl.ioctl(slave, int(request, 0), b"x")
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    return "typed"

def socket_of(family, kind, proto):
    socket.socket(int(family), int(kind), int(proto)).close()
    return "made"

def add_key():
    r, e = syscall("add_key", b"user", b"probe", b"x", 1, -3)  # the session's ring
    if r < 0:
        raise OSError(e, "add_key")
    return "key %d" % r

def exists(name, *args):
    # The call is there if it complains of its arguments.
    r, e = syscall(name, *[ctypes.c_void_p(0)] * 5)
    if r < 0 and e in (errno.ENOSYS, errno.EPERM, errno.EACCES):
        raise OSError(e, name)
    return "answers %d, errno %d" % (r, e)

def dmesg():
    r = libc.klogctl(3, ctypes.create_string_buffer(4096), 4096)
    if r < 0:
        raise OSError(ctypes.get_errno(), "klogctl")
    return "%d bytes" % r

def devices():
    found = []
    for d, _, names in os.walk("/dev"):
        for n in names:
            try:
                m = os.lstat(os.path.join(d, n)).st_mode
            except OSError:
                continue
            if stat.S_ISBLK(m) or n in ("mem", "kmsg", "kvm", "fuse", "vsock"):
                found.append(n)
    if found:
        return " ".join(found)
    raise Shut("none")

def interfaces():
    names = [n for _, n in socket.if_nameindex() if n != "lo"]
    if names:
        return " ".join(names)
    raise Shut("only lo")

def descriptor(mark):
    for p in pids():
        try:
            for fd in os.listdir("/proc/%d/fd" % p):
                if mark in os.readlink("/proc/%d/fd/%s" % (p, fd)):
                    return "descriptor %s of %d" % (fd, p)
        except OSError:
            pass
    raise Shut("no open file of the host")

try:
    print("REACHED", globals()[sys.argv[1]](*sys.argv[2:]))
except (Shut, OSError, AttributeError) as e:
    print("shut:", e)
