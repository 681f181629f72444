"""Which kernels does one call launch, and how often? CUPTI's callbacks in the driver tell it, so the solution's word is
not needed.

PyTorch's profiler answers the same question, but starting it takes 3.5 s in every fresh process (measured on an H200),
all of them with the device held.  Callbacks at each launch take 17 ms, set-up included: they give the kernel's name,
and nothing is recorded on the device.  Kernels inside a CUDA graph have no launch of their own; a call that launches
a graph is profiled.
"""

import ctypes

import torch

DRIVER_API, ENTER = 1, 0  # CUpti_CallbackDomain, CUpti_ApiCallbackSite
LAUNCHES = (115, 116, 117, 307, 442, 477, 478, 480, 652,
            653)  # cuLaunch* of cupti_driver_cbid.h; numbers there are never reused
GRAPHS = (514, 515)  # cuGraphLaunch
MOST = 1024
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class CallbackData(ctypes.Structure):
    _fields_ = [("site", ctypes.c_int), ("function", ctypes.c_char_p), ("params", ctypes.c_void_p),
                ("result", ctypes.c_void_p), ("symbol", ctypes.c_char_p)]  # the head of CUpti_CallbackData


outside = {}  # kernel name: launches outside of PyTorch's operators, in the call that launched() has seen


class Unseen(Exception):
    """CUPTI's callbacks are not available for this call."""


class Watch:
    def __init__(self, trace):
        self.trace, self.counts, self.graphs = trace, {}, 0
        self.hook = Callback(self.launched)
        self.subscriber = ctypes.c_void_p()
        try:
            self.cupti = ctypes.CDLL(f"libcupti.so.{torch.version.cuda.partition('.')[0]}")
        except OSError as e:
            raise Unseen(e)

    def __call__(self, name, *args):
        rc = getattr(self.cupti, name)(*args)
        if rc:
            raise Unseen(f"{name}: {rc}")

    def __enter__(self):
        self("cuptiSubscribe", ctypes.byref(self.subscriber), self.hook, None)
        for which in LAUNCHES + GRAPHS:
            self("cuptiEnableCallback", ctypes.c_uint32(1), self.subscriber, DRIVER_API, ctypes.c_uint32(which))
        return self

    def __exit__(self, *unused):
        self.cupti.cuptiUnsubscribe(self.subscriber)

    def launched(self, _, domain, which, data):
        data = CallbackData.from_address(data)
        if data.site != ENTER:
            return
        self.graphs += which in GRAPHS
        if which in LAUNCHES:
            name = data.symbol or b"?"
            n, hidden = self.counts.get(name, (0, 0))
            self.counts[name] = n + 1, hidden + (self.trace.depth == 0)


def plain(symbol):
    """The demangled C++ name."""
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    text = demangle(symbol, None, None, None)
    if not text:
        return symbol.decode(errors="replace")
    out = ctypes.string_at(text).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return out


class Watcher:
    """Records operators and launches of one timed call; the slow set-up is done before.  No launches if CUPTI is not
    available or the call launches a graph."""

    def __init__(self):
        from wwbridge.trace import Trace

        self.trace = Trace()
        try:
            self.launches = Watch(self.trace).__enter__()
        except Unseen as e:
            print(f"launches are not seen: {e}", flush=True)
            self.launches = None

    def __enter__(self):
        self.trace.__enter__()

    def __exit__(self, *what):
        self.trace.__exit__(*what)

    def answer(self):
        w = self.launches
        if w:
            w.__exit__()
        return {**self.trace.answer(), "kernels": rows_of(w) if w and not w.graphs else []}


def listed(rows):
    """Rows beyond MOST in one, without a name, which counts as a library's: nobody hides a kernel behind many."""
    rest = rows[MOST:]
    return rows[:MOST] + ([["", *(sum(column) for column in list(zip(*rest))[1:])]] if rest else [])


def rows_of(w):
    return listed([[plain(k)[:160], n, hidden, 0] for k, (n, hidden) in w.counts.items()])


def launched(call, sync):
    from wwbridge.trace import Trace

    sync()
    with torch.no_grad(), Trace() as trace, Watch(trace) as w:
        call()
        sync()
    if w.graphs:
        raise Unseen("a graph")
    rows = rows_of(w)
    outside.update((name, hidden) for name, _, hidden, _ in rows)
    return rows


def profiled(call, sync):
    """Kernels that ran on the device, with times, without the driver calls and the overhead that the profiler also
    lists.  It does not know a kernel's operator: kernels that launched() has not seen count as outside."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    sync()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA], acc_events=True) as p:
        call()
        sync()
    ran = [e for e in p.key_averages() if e.device_type == DeviceType.CUDA
           and not e.key.startswith(("Memcpy ", "Memset "))]
    return listed([[e.key[:160], e.count, outside.get(e.key[:160], e.count), e.self_device_time_total] for e in ran])


def kernels(call, sync):
    """[[name, launches, those outside of PyTorch's traced operators, microseconds or 0]], whatever thread launches
    them; []: this process may not trace."""
    for look in launched, profiled:
        try:
            return look(call, sync)
        except Exception as e:
            print(f"{look.__name__}: {type(e).__name__} {e}", flush=True)
    return []
