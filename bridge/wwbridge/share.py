"""Several workers on one device while a client measures there: work takes the device's files as an engine does
(src/host/lease.h), for as long as it lasts, so that a measurement has the device alone and waits no longer than for the
work under way."""

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
