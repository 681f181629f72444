"""Builds of extensions (bridge/wwcandidate/build.py) without a compiler: what stands for ninja here fails or succeeds
as it is told. test_reference.py runs these in its process."""

import os
import sys
import tempfile
import types
from contextlib import contextmanager

from wwcandidate import Problem, build

RECIPE = b"rule compile\nbuild scale.o: compile %s/main.cpp\ndefault scale.so\n"
EPERM = "Error building extension 'scale': ninja: fatal: posix_spawn: Operation not permitted"


@contextmanager
def process(ninja, may_build, blob=b""):
    """A process that holds the solution: its build directory, and what PyTorch calls to run ninja."""
    fake = types.ModuleType("torch.utils.cpp_extension")
    fake._run_ninja_build = lambda directory, *_: ninja(directory)
    old = sys.modules.get(fake.__name__), build.DIRECTORY
    with tempfile.TemporaryDirectory() as build.DIRECTORY:
        sys.modules[fake.__name__] = fake
        try:
            builds = build.Builds(may_build)
            build.short_headers_first(builds)
            if blob:
                build.unpack(blob)
            yield builds, fake._run_ninja_build
        finally:
            sys.modules.pop(fake.__name__)
            if old[0]:
                sys.modules[fake.__name__] = old[0]
            build.DIRECTORY = old[1]


def write_sources(text):
    where = os.path.join(build.DIRECTORY, "scale")
    os.makedirs(where, exist_ok=True)
    for name, bytes_ in (("main.cpp", text), ("build.ninja", RECIPE % os.fsencode(where))):
        with open(os.path.join(where, name), "wb") as f:
            f.write(bytes_)
    return where


def failing(*outcomes):
    """A ninja that fails as often as outcomes say, in turn, and counts its runs."""
    runs = []

    def ninja(directory):
        runs.append(directory)
        if outcomes[len(runs) - 1]:
            raise RuntimeError(EPERM)

    return ninja, runs


def test_a_build_that_the_machine_failed_is_tried_again():
    ninja, runs = failing(True, True, True, True, False)
    for attempt in range(2):  # each tries the short headers, then PyTorch's own
        with process(ninja, True) as (builds, run):
            try:
                run(write_sources(b"int x;"), False, "")
            except RuntimeError as e:
                assert "posix_spawn" in str(e)
            assert builds.open == 1 and len(runs) == 2 * attempt + 2, "a failed build counts as complete"
    with process(ninja, True) as (builds, run):
        run(write_sources(b"int x;"), False, "")
        assert builds.open == 0 and len(runs) == 5


def test_a_finished_build_needs_no_ninja():
    ninja, runs = failing(False)
    # Both processes have the build at one path, as candidates have; a directory that is unpacked has another name here.
    with process(ninja, True) as (_, run):
        where = write_sources(b"int x;")
        run(where, False, "")
        os.utime(os.path.join(where, "main.cpp"))  # newer than the build
        run(where, False, "")
        assert len(runs) == 1 and len(build.finished(where)) == 1
        blob = build.pack()
    with process(ninja, False, blob) as (_, run):
        assert len(build.finished(os.path.join(build.DIRECTORY, "scale"))) == 1
        try:
            run(write_sources(b"int y;"), False, "")
        except Problem as e:
            assert e.kind == "build" and "top level" in str(e)
        else:
            raise AssertionError("a process that is called started ninja")
    assert len(runs) == 1


TESTS = [test_a_build_that_the_machine_failed_is_tried_again, test_a_finished_build_needs_no_ninja]
