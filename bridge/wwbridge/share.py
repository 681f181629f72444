"""Share a device with a client that measures there.  Each piece of work holds a share of the device's lease, as an
engine does (src/host/lease.h): a measurement has the device alone and waits only for work that has started."""

import fcntl
import time


class Share:
    def __init__(self, gate, lock, sync):
        self.gate, self.lock, self.sync, self.depth = gate, lock, sync, 0
        self.seconds = 0.0  # that the last piece of work took, others' work beside it included
        self.spent = [0.0] * 3  # seconds: waited at the gate, held a share, the longest piece of work

    def take(self):
        asked = time.monotonic()
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.taken = time.monotonic()
        self.spent[0] += self.taken - asked

    def give(self):
        try:
            self.sync()
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)
            held = time.monotonic() - self.taken
            self.spent[1] += held
            self.spent[2] = max(self.spent[2], held)

    def account(self):
        """What has been spent since the last account."""
        spent, self.spent = self.spent, [0.0] * 3
        return spent

    def rest(self):
        """In the middle of a long piece of work: a measurement that waits comes first."""
        if self.depth:
            self.give()
            self.take()

    def __enter__(self):
        if self.depth == 0:
            self.take()
            self.start = time.monotonic()
        self.depth += 1

    def __exit__(self, *exc):
        self.depth -= 1
        if self.depth == 0:
            self.give()
            self.seconds = time.monotonic() - self.start
