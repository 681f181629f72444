"""What a candidate's last call returned, in the memory of another process (bridge/wwbridge/returned.py): here a piece
is a tensor of this process, and its descriptor a number."""

import contextlib
import types

import torch
from wwbridge import facts, returned
from wwbridge.buffers import Shared
from wwbridge.task import Task

ROWS, COLUMNS = 64, 1024


@contextlib.contextmanager
def pieces_are(pieces):
    """pieces: number to bytes; yields those that were mapped and not unmapped."""
    mapped = []

    class Memory:
        def __init__(self, fds, sizes, device, writable):
            assert writable and sizes == [pieces[fd].numel() for fd in fds]
            self.bytes, self.nbytes = pieces[fds[0]], sum(sizes)
            mapped.append(self)

        def close(self):
            mapped.remove(self)

    before, returned.ImportedMemory = returned.ImportedMemory, Memory
    try:
        yield mapped
    finally:
        returned.ImportedMemory = before


def buffers():
    """A task's shared buffers: an input, a parameter and an output of as many numbers each."""
    memory = [types.SimpleNamespace(bytes=torch.rand(ROWS * COLUMNS).view(torch.uint8)) for _ in range(3)]
    return types.SimpleNamespace(memory=memory, rows=[{"role": r} for r in ("input", "param", "output")],
                                 outputs=[memory[2].bytes.view(torch.float32).view(ROWS, COLUMNS)])


def take(shared, piece, strides=(COLUMNS, 1), apart=True, offset=0):
    where = {"offset": offset, "strides": list(strides), "pieces": [piece.numel()]}
    return returned.Returned(shared, [apart], [where], [7], torch.device("cpu"))


def what_was_returned_is_poisoned_when_it_is_forgotten():
    shared, piece = buffers(), torch.rand(2 * ROWS * COLUMNS).view(torch.uint8)
    before, half = piece.clone(), piece.numel() // 2
    with pieces_are({7: piece}) as mapped:
        r = take(shared, piece, offset=half // 2)
        assert torch.equal(r.copies[0].flatten(), before.view(torch.float32)[ROWS * COLUMNS // 2 :][: ROWS * COLUMNS])
        assert r.same() and not r.forget() and not mapped
        there = piece[half // 2 :][:half]
        assert len(there.unique()) == 1 and int(there[0]) in (0xFF, 0x7F, 0x00, 0xFE)
        assert torch.equal(piece[: half // 2], before[: half // 2])  # what lies beside it is not
        assert torch.equal(piece[half // 2 + half :], before[half // 2 + half :])
        piece.copy_(before)
        # elements of something else lie between; the task's own output is a view
        for strides, apart in (((2 * COLUMNS, 1), True), ((COLUMNS, 1), False)):
            assert not take(shared, piece, strides, apart).forget() and torch.equal(piece, before)


def every_kind_of_poison_comes():
    shared, piece, seen = buffers(), torch.rand(ROWS * COLUMNS).view(torch.uint8), set()
    with pieces_are({7: piece}):
        for _ in range(4):
            take(shared, piece).forget()
            seen.add(int(piece[0]))
    assert seen == {0xFF, 0x7F, 0x00, 0xFE}


def the_judges_own_outputs_get_every_kind_of_poison():
    shared = buffers()
    before, shared.poisons = shared.memory[0].bytes.clone(), returned.itertools.cycle(returned.POISON)
    found = []
    for _ in range(5):
        Shared.poison(shared)
        (byte,) = shared.memory[2].bytes.unique().tolist()
        found.append(byte)
    assert found == [0xFF, 0x7F, 0x00, 0xFE, 0xFF] and torch.equal(shared.memory[0].bytes, before), found


def a_draw_reaches_the_buffers_when_it_is_published():
    text = ("import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.fc = torch.nn.Linear(4, 3)\n    def forward(self, x):\n        return self.fc(x)\n"
            "def get_inputs():\n    return [torch.randn(2, 4)]\ndef get_init_inputs():\n    return []\n")
    task = Task(text, "later.py", 3, facts.Target("cpu", 0, torch))
    task.share()

    def now():
        return [t.clone() for t in (*task._shared.inputs, *task._shared.params)]

    task.draw(5, 1.0, 0.0, "redraw")
    before = now()
    task.draw(6, 1.0, 0.0, "redraw", later=True)
    assert all(map(torch.equal, now(), before))
    task.publish()
    there = now()
    assert not any(map(torch.equal, there, before))
    task.draw(6, 1.0, 0.0, "redraw")
    assert all(map(torch.equal, now(), there))
    task.close()


def the_memory_of_an_argument_is_no_output():
    for which in 0, 1:
        shared = buffers()
        with pieces_are({7: shared.memory[which].bytes}):
            assert take(shared, shared.memory[which].bytes).forget()
    shared = buffers()
    with pieces_are({7: shared.memory[2].bytes}):  # where the judge takes outputs from
        assert not take(shared, shared.memory[2].bytes).forget()


def a_piece_that_is_too_small_is_refused_and_unmapped():
    shared, piece = buffers(), torch.rand(ROWS * COLUMNS).view(torch.uint8)
    with pieces_are({7: piece}) as mapped:
        for offset, fds in ((4, [7]), (0, [])):
            where = {"offset": offset, "strides": [COLUMNS, 1], "pieces": [piece.numel()]}
            try:
                returned.Returned(shared, [True], [where], fds, torch.device("cpu"))
            except ValueError:
                assert not mapped
            else:
                raise AssertionError("was taken")


TESTS = [what_was_returned_is_poisoned_when_it_is_forgotten, every_kind_of_poison_comes,
         the_judges_own_outputs_get_every_kind_of_poison, a_draw_reaches_the_buffers_when_it_is_published,
         the_memory_of_an_argument_is_no_output, a_piece_that_is_too_small_is_refused_and_unmapped]
