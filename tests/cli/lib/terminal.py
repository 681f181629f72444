"""A command one of whose streams is a terminal."""
import fcntl
import os
import pty
import struct
import subprocess
import termios


def on_terminal(argv, stream="stdout", columns=80):
    """Exit code, what a terminal of so many columns sees of `stream`, and the other one (a few lines at most)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    other = "stderr" if stream == "stdout" else "stdout"
    p = subprocess.Popen(argv, **{stream: slave, other: subprocess.PIPE}, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(master)
    rest = getattr(p, other).read().decode(errors="replace")
    return p.wait(), seen.decode(errors="replace"), rest
