import ctypes


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_long), ("signal", ctypes.c_int), ("how", ctypes.c_int), ("rest", ctypes.c_char * 48)]


def go_on_every(us):
    """A timer of the system's sends SIGCONT to this process, whether it runs or not."""
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    if libc.timer_create(1, ctypes.byref(Event(0, 18, 0)), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, us * 1000, 0, us * 1000), None)
