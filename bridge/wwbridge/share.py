"""Share a device with a client that measures there.  Each piece of work holds a share of the device's lease, as an
engine does (src/host/lease.h): a measurement has the device alone and waits only for work that has started."""

import fcntl


class Share:
    def __init__(self, gate, lock, sync):
        self.gate, self.lock, self.sync, self.depth = gate, lock, sync, 0

    def __enter__(self):
        if self.depth == 0:
            fcntl.flock(self.gate, fcntl.LOCK_EX)
            fcntl.flock(self.lock, fcntl.LOCK_SH)
            fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.depth += 1

    def __exit__(self, *exc):
        self.depth -= 1
        if self.depth == 0:
            try:
                self.sync()
            finally:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
