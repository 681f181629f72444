#!/bin/bash
# Every kernel of ours under compute-sanitizer (memcheck, racecheck, initcheck, synccheck), each alone and without
# PyTorch: the cookbook's solutions and checks on small shapes, and the runner's own.  One line a case; what a tool has
# found follows.  About 60 s on 16 cores.
#     tests/gpu/sanitize.sh [NAME...]        exit code 0: nothing found;  77: no GPU, no toolkit or no compiler here
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
cuda=${CUDA_HOME:-/usr/local/cuda}
tool=$(command -v compute-sanitizer || echo "$cuda/bin/compute-sanitizer")
[ -e /dev/nvidiactl ] || { echo "no NVIDIA GPU here"; exit 77; }
[ -x "$tool" ] && [ -e "$cuda/include/nvrtc.h" ] && command -v cc > /dev/null ||
	{ echo "no compute-sanitizer, no CUDA headers or no C compiler here"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
build() { cc -D_GNU_SOURCE -O1 -w -Isrc -Iinclude -Iskills/cuda/include "-I$cuda/include" "-DTUNE=" "$@" -ldl; }
build -c bench/kernels/lab.c -o "$tmp/lab.o" && build -c tests/gpu/sanitize.c -o "$tmp/main.o" || exit 1
echo 'struct ww_plan; void plan(struct ww_plan *p) { (void)p; }' > "$tmp/none.c"

# case NUMBER NAME TENSOR...
one() {
	number=$1 name=$2; shift 2
	dir=bench/kernels/checks/$name
	[ -d "$dir" ] || dir=bench/kernels/solutions/$name
	plan=$dir/plan.c args=("$dir/kernels.cu" "$root/skills/cuda/include:$cuda/include" "$@")
	[ "$name" = runner ] && plan=$tmp/none.c args=()
	program=$tmp/$number
	build "$plan" "$tmp/lab.o" "$tmp/main.o" -o "$program" > "$program.log" 2>&1 ||
		{ echo "not ok  $name: does not build"; cat "$program.log"; return; }
	said="" bad=0
	for t in memcheck racecheck initcheck synccheck; do
		LAB_BARE=1 timeout 60 "$tool" --tool $t --error-exitcode 9 --print-limit 4 --show-backtrace device \
			"$program" "${args[@]}" > "$program.$t" 2>&1
		code=$?
		if [ $code = 0 ] && grep -q '^ran$' "$program.$t"; then said="$said $t"; else said="$said $t:$code"; bad=1; fi
	done
	{
		[ $bad = 0 ] && echo "ok      $name:$said  ($*)" || echo "not ok  $name:$said  ($*)"
		for t in memcheck racecheck initcheck synccheck; do
			case "$said" in *"$t:"*)
				grep -v '^=* *$' "$program.$t" | sed -E -f tests/gpu/short.sed -e "s/^/    $t: /" |
					head -n 24 | cut -c 1-300
				;;
			esac
		done
	} > "$program.said"
	cat "$program.said"
}
export -f one build
export root cuda tool tmp
{ echo runner; grep -v '^#' tests/gpu/sanitize_shapes.txt; } |
	awk -v wanted=" $* " 'wanted == "  " || index(wanted, " " $1 " ") { print NR, $0 }' |
	xargs -P "$(nproc)" -I{} bash -c 'one {}'
failed=$(cat "$tmp"/*.said | grep -c '^not ok')
echo "$(cat "$tmp"/*.said | grep -c '^ok') passed, $failed failed"
[ "$failed" -eq 0 ]
