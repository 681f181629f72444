"""A process that judges jobs, one line each, and whose answers are read as they come; more jobs may be added then."""
import json
import os
import queue
import signal
import subprocess
import threading

PATIENCE = 20  # seconds for a process that was told to end


class Batch:
    """seconds: end it after so many (0: never). A signal to this process ends it, too; `stopped` says so."""

    def __init__(self, command, seconds, environment):
        self.lines, self.open, self.stopped = queue.SimpleQueue(), 0, ""
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, **environment))
        threading.Thread(target=self._feed, daemon=True).start()
        for s in (signal.SIGTERM, signal.SIGINT):
            signal.signal(s, lambda number, _: self.stop(signal.Signals(number).name))
        if seconds:
            self._later(seconds, lambda: self.stop(f"{seconds:g} seconds are over"))

    def _later(self, seconds, what):
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        timer.start()

    def _feed(self):
        try:
            for line in iter(self.lines.get, None):
                self.child.stdin.write(line)
                self.child.stdin.flush()
            self.child.stdin.close()
        except BrokenPipeError:
            pass  # it was ended early

    def stop(self, why):
        self.stopped = self.stopped or why
        self.child.terminate()
        self._later(PATIENCE, self.child.kill)

    def add(self, jobs):
        self.open += len(jobs)
        for j in jobs:
            self.lines.put(json.dumps(j) + "\n")
        if not self.open:
            self.end()

    def end(self):
        """No more jobs will be added."""
        self.lines.put(None)

    def answers(self):
        """Each answer; ends when all jobs that were added, also meanwhile, have one, or the process has ended."""
        for line in self.child.stdout:
            if not line.endswith("}\n"):
                continue
            yield json.loads(line)
            self.open -= 1
            if not self.open:
                self.end()

    def code(self):
        return self.child.wait()
