"""Parts that an activation hides (bridge/wwbridge/kinks.py): PyTorch's own program with other roundings is right, what
is wrong there is not.  test_reference.py runs these in its process."""

import torch
from cases_ties import HEAD, Drawn
from wwbridge import kinks

# Operands of 11 bits, as convolutions have them on a GPU.  Inputs 2^-6 times as large leave some channels of which one
# element in thousands is above zero.  The twins round other bits away, and the negative ones results to halves, too.
SPARSE = HEAD + """
        self.fc = nn.Linear(64, 256)
    def forward(self, x):
        g = 1 + abs(TWIN[0]) * 0.37
        y = (self.fc.weight * g).half().float() @ (x * g).half().float() / (g * g)
        y = torch.relu((y.half().float() if TWIN[0] < 0 else y) + self.fc.bias[:, None])
        return {out}
def get_inputs(): return [torch.randn(64, 2048)]
def get_init_inputs(): return []
"""
SCALE = 2.0**-6
PLAIN, SMALLER = "y", "y * torch.logspace(0, -9, 256)[:, None]"
BFLOAT16 = "y.bfloat16()"


def drawn(out, seed):
    return Drawn(SPARSE.replace("{out}", out)).draw(seed, SCALE)


def sparse(exact, least=1, most=4):
    """(channel, block) of 256 neighbours, all but a few of them hidden, and these a hundredth of the largest element at
    most."""
    shown = (exact > 0).view(len(exact), -1, 256).sum(-1)
    small = exact.view(len(exact), -1, 256).amax(-1) < 1e-2 * exact.max()
    found = ((shown >= least) & (shown <= most) & small).nonzero().tolist()
    assert found, "no such block: this tests nothing"
    return found


def twins_are_right(*twins):
    for seed, number in twins:
        d = drawn(PLAIN, seed)
        row = d.judge(d.twin(number))
        assert row["pass"] and d.refs.seen, (seed, number, row)
        d.task.close()


def a_hidden_element_that_other_roundings_show_is_right():
    """It is 2e-6 above zero, where PyTorch's error is 1e-5 at most; its block has no other that is shown."""
    twins_are_right((47, -1))


def a_shown_element_beside_hidden_ones_may_have_another_error():
    """These were 5e-6 and 3e-6 off, PyTorch 1e-7 by luck."""
    twins_are_right((1, -1), (32, 2))


def the_error_of_shown_elements_is_that_of_their_own_indices():
    """Of a row with few of them it is what their error may be, where they are lucky."""
    exact = torch.zeros(32, 64, dtype=torch.float64)
    exact[:, :16], exact[5, :16], exact[6, 4:] = 1e-3, 1e-9, 0
    off = exact.clone()
    off[:, :16] += 1e-5
    off[5, :16], off[6, 4:], off[6, :4] = exact[5, :16] + 1e-11, 0, exact[6, :4] + 1e-8
    shown = kinks.Shown(off, exact, 1e-2)

    def usual(row, column, most=1e-2):
        return shown.usual2(torch.tensor(row * 64 + column), most) ** 0.5

    assert abs(usual(7, 40) - 1e-5) < 1e-6 and abs(usual(5, 40) - 1e-11) < 1e-13 and usual(5, 3) < 1.1e-11
    assert 3e-8 < usual(6, 40) < 5e-8 and abs(usual(7, 40, 1e-8) - 1e-11) < 1e-13
    assert kinks.Shown(off[:1, :7], exact[:1, :7], 1e-2).usual2(torch.tensor(0), 1e-2) == 0.0, "too few are shown"


def what_is_wrong_behind_an_activation_is_refused():
    d = drawn(PLAIN, 47)
    exact, own, shown = d.refs.exact[0], d.refs.default[0].clone(), d.refs.own[0]["err_abs"]
    for channel, block in sparse(exact, 0, 2)[:3]:
        at = slice(block * 256, block * 256 + 256)
        hidden = (exact[channel, at] == 0).nonzero().flatten() + block * 256
        for what, where, by in (("one far off", hidden[:1], 12 * shown), ("many a little off", hidden[::2], shown),
                                ("all a little off", hidden, shown / 2)):
            wrong = own.clone()
            wrong[channel, where] += by
            row = d.judge(wrong)
            assert not row["pass"] and row["part"], (what, channel, block, row)
    d.task.close()


def small_channels_are_not_measured_by_large_ones():
    """Of a channel that is a billionth as large as another one an element may not be off by what is right there."""
    d = drawn(SMALLER, 47)
    exact = d.refs.exact[0]
    shown = (exact > 0).sum(-1)
    channel = int(((shown > 64) & (shown < 1024)).nonzero()[-1])
    hidden = int((exact[channel] == 0).nonzero()[0])
    for by in (1.0, 1e-1):
        wrong = d.refs.default[0].clone()
        wrong[channel, hidden] += by * 1e-6 * exact[channel].max()
        assert d.judge(wrong)["pass"], "the error is too large to tell channels apart"
        wrong[channel, hidden] = by * d.refs.own[0]["err_abs"]
        row = d.judge(wrong)
        assert not row["pass"], (channel, int(shown[channel]), row)
    d.task.close()


def small_elements_are_not_measured_by_large_ones():
    """A bfloat16 rounding is a share of the element: blocks with few, small elements may not be zeros."""
    d = drawn(BFLOAT16, 47)
    for channel, block in sparse(d.refs.exact[0])[:4]:
        wrong = d.refs.default[0].clone()
        wrong[channel, block * 256 : block * 256 + 256] = 0
        row = d.judge(wrong)
        assert not row["pass"], (channel, block, row)
    d.task.close()


TESTS = [the_error_of_shown_elements_is_that_of_their_own_indices, a_hidden_element_that_other_roundings_show_is_right]
COSTLY = [a_shown_element_beside_hidden_ones_may_have_another_error, what_is_wrong_behind_an_activation_is_refused,
          small_channels_are_not_measured_by_large_ones, small_elements_are_not_measured_by_large_ones]
