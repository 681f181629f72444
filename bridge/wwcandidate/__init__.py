"""The parts of the process that runs a solution in a PyTorch form.  confine.py drops its privileges, holder.py answers
the judge, solution.py loads the two forms, shared.py maps the judge's buffers, build.py builds compiled extensions,
launches.py records which kernels a call launches."""


class Problem(Exception):
    """A failure to be reported to the judge: kind is "build" (an extension does not compile), "solution" (no ModelNew
    can be made of it), "call" (forward() raised) or "output" (it returned something that cannot be compared)."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind
