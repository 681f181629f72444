"""Whether a call uses one stream (cuda): then each node of its capture waits for the one before it.

A worker's context has one hardware connection at first, since each costs the driver time to start (src/judge/cache/
baselines.c).  What runs on one stream is as fast; what uses several, as cuDNN's recurrent layers do, needs more."""

import ctypes

from . import one_line


def is_chain(edges, nodes):
    """Whether each of `nodes` nodes waits for the one before it.  edges: [(from, to)]."""
    return len(edges) == max(nodes - 1, 0) and all(len(set(end)) == len(edges) for end in zip(*edges))


def captured_edges(stream):
    """([(from, to)], the number of nodes) of what `stream` has captured so far.  CUDA driver API, "Graph Management"
    and "Stream Management"."""
    lib = ctypes.CDLL("libcuda.so.1")

    def cu(name, *args):
        rc = getattr(lib, name)(*args)
        if rc:
            raise OSError(f"{name} returned {rc}")

    state, graph = ctypes.c_int(0), ctypes.c_void_p()
    nodes, n = ctypes.c_size_t(0), ctypes.c_size_t(0)
    cu("cuStreamGetCaptureInfo_v3", ctypes.c_void_p(stream.cuda_stream), ctypes.byref(state), None,
       ctypes.byref(graph), None, None, None)
    cu("cuGraphGetNodes", graph, None, ctypes.byref(nodes))
    cu("cuGraphGetEdges_v2", graph, None, None, None, ctypes.byref(n))
    begins, ends = (ctypes.c_void_p * n.value)(), (ctypes.c_void_p * n.value)()
    if n.value:
        data = (ctypes.c_uint64 * n.value)()  # CUgraphEdgeData: programmatic launches have some
        cu("cuGraphGetEdges_v2", graph, begins, ends, data, ctypes.byref(n))
    return list(zip(begins, ends)), nodes.value


def on_one_stream(stream):
    """Whether what `stream` has captured so far was issued on one stream; False where the driver does not say."""
    try:
        return is_chain(*captured_edges(stream))
    except (AttributeError, OSError) as e:  # an older driver: more connections are right for any module
        print(f"the streams of a call are not known: {one_line(e)}", flush=True)
        return False
