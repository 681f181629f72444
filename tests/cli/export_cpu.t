#!/bin/sh
# budget: 13 CPU-seconds, all 28
# timeout: 600
# all: the form kernelbench is written and checked; checks of finished exports run again
# `warpwright export` on the cpu target: each form is written, checked, and usable; wrong arguments leave nothing
# behind.
cd "$WW_SOURCE_DIR" || exit 1
data=tests/data/export
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python=${WW_PYTHON:-.venv/bin/python}
n=0 all=${1:-}
ok() {
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/log"; fi
}
says() { # exit code, word of the log, what, options: the command ends with this code and word
	code=$1 word=$2 what=$3
	shift 3
	run "$@"
	[ $? -eq "$code" ] && grep -q -- "$word" "$tmp/log"
	ok $? "$what"
}
run() { "$WARPWRIGHT" export "$@" > "$tmp/log" 2>&1; }

# Scripts of checks see the judge's GPU alone, by its number among those that are visible.  These use no PyTorch: an
# empty module stands for it.
mkdir "$tmp/sees" "$tmp/none"
: > "$tmp/none/torch.py"
echo 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])' > "$tmp/sees/sees.py"
sees() { # CUDA_VISIBLE_DEVICES, number, what the script shall see
	echo "{\"turn\": false, \"device\": $2, \"jobs\": [[\"$tmp/sees\", \"sees.py\"]]}" |
		CUDA_VISIBLE_DEVICES=$1 PYTHONPATH=$tmp/none \
			"$python" -s -c "$(cat src/export/templates/run_all.py)" > "$tmp/log" 2>&1 &&
		grep -q "\"output\": \"$3" "$tmp/log"
}
sees GPU-a,GPU-b 1 GPU-b && sees "" 1 '1\\n'
ok $? "checks of exports run on the judge's GPU"

# An earlier export in the place of a new one, as its check.py shows.
mkdir "$tmp/c"
echo 'raise SystemExit(1)' > "$tmp/c/check.py"
echo old > "$tmp/c/old.txt"

# A task with a module and a file beside it, and arguments by name: the directories carry them, the one file says that
# it cannot.  Paths are relative, as most are given by hand.  Beside its weight the model has a recurrent module, which
# torch.compile does not trace through: nothing with one could be exported.  The first two draws of the c form's check
# find no memory, as on a GPU that others fill.
mkdir "$tmp/own"
cat > "$tmp/crowded.py" <<'PY'
    import os, sys
    if sys.argv[0].endswith("check.py") and os.path.exists("weights.py"):
        with open("drawn", "a") as f:
            f.write("x")
        if os.path.getsize("drawn") <= 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 MiB.")
PY
sed -e 's/^import torch$/import torch\nfrom own_part import width/' \
	-e 's/return \[1000\]/return [[], {"width": width}]/' \
	-e 's/^        self.weight.*/&\n        self.rnn = nn.GRU(1, 1)/' \
	-e 's/, 0.25\]/, float(open("shift.txt").read())]/' \
	-e "/^def get_inputs/r $tmp/crowded.py" $data/scaled_relu.py > "$tmp/own/scaled_relu.py"
echo 'width = 1000' > "$tmp/own/own_part.py"
echo 0.25 > "$tmp/own/shift.txt"
(cd "$tmp" && run "$WW_SOURCE_DIR/$data/solution" --task own/scaled_relu.py --format c,torch,kernelbench --weights -o .)
for form in c torch; do
	grep -q "^./$form: checked" "$tmp/log"
	ok $? "export $form, with what the task imports and reads"
done
[ "$(cat "$tmp/c/drawn")" = xxxxx ]; ok $? "a check that finds no memory is made again"
grep -q "plan.c, in the package's lib/;" "$tmp/torch/README.md" &&
	[ -f "$tmp/torch/warpwright_scaled_relu/lib/plan.c" ] && grep -q 'plan.c; plan.txt' "$tmp/c/README.md"
ok $? "README says where the kernels and the plan are"
grep -q 'cannot carry own_part.py' "$tmp/log" && [ ! -e "$tmp/kernelbench" ]
ok $? "kernelbench is one file and carries no other"
if [ "$all" ]; then
	run $data/solution --task $data/scaled_relu.py --format kernelbench -o "$tmp/kernelbench" &&
		grep -q "^$tmp/kernelbench: checked" "$tmp/log"
	ok $? "export kernelbench"
	cp $data/scaled_relu.py "$tmp/switch.py" # a word of C
	run $data/solution --task "$tmp/switch.py" --format c -o "$tmp/switch" && [ -f "$tmp/switch/task_switch.h" ]
	ok $? "a task may be called by a word of C"
fi

# A wrong kernel must fail the check and leave nothing.
cp -r $data/solution "$tmp/wrong"
sed -i 's/v + shift/v - shift/' "$tmp/wrong/kernels.c"
run "$tmp/wrong" --task $data/scaled_relu.py --format kernelbench -o "$tmp/wrong-export"
[ $? -eq 3 ] && [ ! -e "$tmp/wrong-export" ] && grep -q 'failed its check' "$tmp/log"
ok $? "a wrong solution is not exported"
[ "$(ls "$tmp" | grep -c 'new-')" -eq 0 ]; ok $? "nothing half-written is left"

# The torch form in use, with "all" behind both checks again, from another directory: state_dict, fall-back that says so
# once, gradients.  All in one process.  That it compiles without a break and stays right is part of the torch form's
# own check, above.
cat > "$tmp/use.py" <<'PY'
import ctypes, gc, os, runpy, sys, warnings
gc.disable()
import torch
for form in sys.argv[3:]:
    try:
        runpy.run_path(f"{sys.argv[2]}/{form}/check.py", run_name="__main__")
    except SystemExit as end:
        print(form, "passed" if not end.code else "failed")
sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[1] + "/warpwright_scaled_relu")  # where the file lies that get_inputs() reads
from warpwright_scaled_relu import Model, ModelNew, optimized, get_inputs, get_init_inputs
model = Model(**get_init_inputs()[1])
new = ModelNew(**get_init_inputs()[1])
new.load_state_dict(model.state_dict())
x, shift = get_inputs()
with torch.no_grad(), warnings.catch_warnings():
    warnings.filterwarnings("error", message=".*original module")
    for a, b in zip(new(x, shift), model(x, shift)):
        assert torch.equal(a, b)
    for a, b in zip(optimized(model)(x, shift), model(x, shift)):
        assert torch.equal(a, b)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(new(x[:5], shift)[0], model(x[:5], shift)[0])
    assert len(seen) == 1 and "original module" in str(seen[0].message), [str(s.message) for s in seen]
    new(x, shift)[0].sum().backward()
    assert new.weight.grad is not None and len(seen) == 2
    with torch.no_grad():
        assert torch.equal(new(x, 0.5)[1], model(x, 0.5)[1])
        assert torch.equal(new.double()(x.double(), shift)[0], model.double()(x.double(), shift)[0])
print("used")
# Nothing that is used needs a gradient: the plan runs, without no_grad too.
frozen = optimized(ModelNew(**get_init_inputs()[1]).requires_grad_(False), strict=True)
assert torch.equal(frozen(x, shift)[0], frozen.__class__.__mro__[1].forward(frozen, x, shift)[0])
for use in (lambda: frozen(x.clone().requires_grad_(), shift), lambda: optimized(model, strict=True)(x, shift), lambda: frozen(x[:5], shift)):
    try:
        use()
    except RuntimeError as e:
        assert "the plan does not apply" in str(e), e
    else:
        raise AssertionError("strict fell back")
print("strict")
# The C library with its weights from their file: those of the module that model.py makes under seed 0.
c = ctypes.CDLL(f"{sys.argv[2]}/c/libscaled_relu.so")
for f, kinds in (("new", [ctypes.c_char_p]), ("load_weights", [ctypes.c_char_p, ctypes.c_char_p])):
    getattr(c, f"scaled_relu_{f}").restype, getattr(c, f"scaled_relu_{f}").argtypes = ctypes.c_void_p, kinds
c.scaled_relu_run.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_char_p]
why = ctypes.create_string_buffer(1024)
weights = c.scaled_relu_load_weights(f"{sys.argv[2]}/c/scaled_relu.weights".encode(), why)
assert weights, why.value
assert not c.scaled_relu_load_weights(f"{sys.argv[2]}/c/model.py".encode(), why) and b"weights.py" in why.value, why.value
torch.manual_seed(0)
fresh = Model(**get_init_inputs()[1])
with torch.no_grad():
    want = fresh(x, shift)
got = [torch.empty_like(t) for t in want]
pointers = lambda ts: (ctypes.c_void_p * len(ts))(*[t.data_ptr() for t in ts])
assert c.scaled_relu_run(c.scaled_relu_new(why), pointers([x]), weights, pointers(got), None, None, why) == 0, why.value
assert all(torch.equal(a, b) for a, b in zip(want, got))
print("weights", flush=True)
os._exit(0)  # the end of PyTorch takes half a second
PY
"$python" "$tmp/use.py" "$tmp/torch" "$tmp" ${all:+c kernelbench} > "$tmp/log" 2>&1
grep -q '^used' "$tmp/log"; ok $? "the torch form in a program of its own"
grep -q '^strict' "$tmp/log"; ok $? "frozen parameters use the plan; strict raises in place of falling back"
grep -q '^weights' "$tmp/log" && grep -q 'libscaled_relu.so and scaled_relu_kernels.so' "$tmp/c/README.md"
ok $? "the C library with weights from their file"
for form in ${all:+c kernelbench}; do
	grep -q "^$form passed" "$tmp/log"
	ok $? "$form passes its check again"
done

task="--task $data/scaled_relu.py"
# shellcheck disable=SC2086
{
	says 2 torch "an unknown format names the formats" $data/solution $task --format nope -o "$tmp/x"
	says 2 'format c' "weights are for the C library" $data/solution $task --format torch --weights -o "$tmp/x"
	says 2 'c twice' "a format that is named twice" $data/solution $task --format c,c -o "$tmp/x"
	says 2 --task "no task says how to name one" $data/solution --format torch -o "$tmp/x"
	says 2 'no directory nowhere' "a directory that is not there" nowhere --format torch -o "$tmp/x"
	mkdir "$tmp/empty"
	says 2 kernels "no solution says what is missing" "$tmp/empty" $task -o "$tmp/x"
	says 2 . "a directory that is no export is not overwritten" $data/solution $task --format c \
		-o "$tmp/torch/warpwright_scaled_relu/lib"
}
[ ! -e "$tmp/c/old.txt" ] && [ ! -e "$tmp/c.old" ]; ok $? "an earlier export is replaced as a whole"
echo "1..$n"
