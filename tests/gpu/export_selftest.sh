#!/bin/sh
# Exports of a plan with library nodes (a product and a convolution) and a kernel of its own, on a GPU: each form is
# written, which compares it with PyTorch in a fresh process, and compared once more from another directory.  One line a
# step.  About 50 s. $WARPWRIGHT is the binary (default build/warpwright), $WW_PYTHON the Python that has PyTorch.
cd "$(dirname "$0")/../.." || exit 1
warpwright=${WARPWRIGHT:-$PWD/build/warpwright}
python=${WW_PYTHON:-$PWD/.venv/bin/python}
[ -e /dev/nvidiactl ] || { echo "1..0 # SKIP no GPU"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/task.py" <<'PY'
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 12 * 10, 512)

    def forward(self, x):
        return torch.tanh(self.fc(torch.relu(self.conv(x)).flatten(1)))


def get_inputs():
    return [torch.randn(256, 8, 12, 10)]


def get_init_inputs():
    return []
PY
mkdir "$tmp/solution"
cat > "$tmp/solution/plan.c" <<'C'
#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0), *cw = ww_param(p, "conv.weight"), *cb = ww_param(p, "conv.bias"),
			       *w = ww_param(p, "fc.weight"), *b = ww_param(p, "fc.bias");
	long long n = x->size[0], k = w->size[1];
	int s = ww_scratch(p, n * k * 4);
	struct ww_conv c = { .nd = 2, .dtype = WW_F32, .groups = 1, .n = n, .c = x->size[1], .k = cw->size[0], .in = { x->size[2], x->size[3] },
			     .kernel = { 3, 3 }, .out = { x->size[2], x->size[3] }, .stride = { 1, 1 }, .pad = { 1, 1 }, .dilation = { 1, 1 },
			     .x_buf = x->buf, .w_buf = cw->buf, .y_buf = s, .bias_buf = cb->buf, .epilogue = WW_EPI_BIAS_RELU,
			     .workspace_bytes = 64 << 20 };
	struct ww_gemm g = { .m = n, .n = w->size[0], .k = k, .batch = 1, .alpha = 1, .epilogue = WW_EPI_BIAS, .bias_buf = b->buf,
			     .workspace_bytes = 4 << 20, .math = WW_MATH_FP32, .a = { .buf = s, .dtype = WW_F32, .ld = k },
			     .b = { .buf = w->buf, .dtype = WW_F32, .ld = k, .trans = 1 }, .d = { .buf = y->buf, .dtype = WW_F32, .ld = w->size[0] } };
	ww_conv(p, &c);
	ww_gemm(p, &g);
	ww_launch(p, "squash", ww_cdiv(y->numel, 256), 1, 1, 256, 1, 1);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, y->numel);
}
C
cat > "$tmp/solution/kernels.cu" <<'CUDA'
extern "C" __global__ void squash(float *y, long long n)
{
	long long i = blockIdx.x * 256ll + threadIdx.x;
	if (i < n)
		y[i] = tanhf(y[i]);
}
CUDA
# Side by side: each waits most of its time for a PyTorch of its own.
step() {
	name=$1; shift
	start=$(date +%s)
	if timeout 150 "$@" > "$tmp/$name.log" 2>&1; then
		echo "ok     $name, $(($(date +%s) - start)) s" > "$tmp/$name.said"
	else
		{
			echo "not ok $name, exit $?, $(($(date +%s) - start)) s"
			sed 's/^/    /' "$tmp/$name.log" | tail -n 20
		} > "$tmp/$name.said"
	fi
	cat "$tmp/$name.said"
}
all() {
	for form in c torch kernelbench; do "$1" $form & done
	wait
}
export_it() { step "export-$1" "$warpwright" export "$tmp/solution" --task "$tmp/task.py" --format "$1" -o "$tmp/$1"; }
check_it() { (cd / && step "check-$1" "$python" "$(find "$tmp/$1" -name check.py | head -n 1)"); }
step judge "$warpwright" judge "$tmp/task.py" "$tmp/solution" --target cuda --verify-only --baselines eager
all export_it
all check_it
failed=$(cat "$tmp"/*.said | grep -c '^not ok')
echo "$(cat "$tmp"/*.said | grep -c '^ok') passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$(ls "$tmp"/*.said | wc -l)" -eq 7 ]
