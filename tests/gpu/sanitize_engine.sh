#!/bin/bash
# Every kernel of the engine under compute-sanitizer (memcheck, racecheck, initcheck, synccheck): each operation of
# test-ops by itself, and each test of bits (dev_test_exact), which has the joined operations.  One line a case and
# tool; what a tool has found follows.
#     tests/gpu/sanitize_engine.sh [NAME...]        exit code 0: nothing found;  77: no GPU, no toolkit or no test
#                                                   programs here
# TESTS names the directory of the test programs (build/tests).  cuBLASLt's kernels are not ours: they are left out by
# their names, and of the products only the odd widths are run, which are ours (gemm_k); some of the library's own
# kernels end with an "internal sanitizer error" under racecheck.
cd "$(dirname "$0")/../.." || exit 1
tests=${TESTS:-$PWD/build/tests}
tool=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
[ -e /dev/nvidiactl ] || { echo "no NVIDIA GPU here"; exit 77; }
[ -x "$tool" ] && [ -x "$tests/test-ops" ] && [ -x "$tests/dev_test_exact" ] ||
	{ echo "no compute-sanitizer or no test programs here"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# TOOL KERNELS NAME: one case
one() {
	case $3 in
	*_*_*) program=("$tests/dev_test_exact" cuda "$3") ;;
	*) program=("$tests/test-ops" cuda exact once "$3") ;;
	esac
	log=$tmp/$1.$2.$3
	theirs=()
	for name in nvjet cublas cutlass xmma; do theirs+=(--kernel-name-exclude "kernel_substring=$name"); done
	WARPWRIGHT_CUDA_KERNELS=$2 timeout 90 "$tool" --tool "$1" "${theirs[@]}" --error-exitcode 9 --print-limit 6 \
		--show-backtrace device "${program[@]}" > "$log.out" 2>&1
	code=$?
	{
		if [ $code = 0 ]; then echo "ok      $1 $3 ($2)"; else
			echo "not ok  $1 $3 ($2), exit $code"
			grep '^=.*[^= ]\|FAIL\|ERROR' "$log.out" | sed -E -f tests/gpu/short.sed -e 's/^/    /' |
				head -n 24 | cut -c 1-300
		fi
	} > "$log.said"
	cat "$log.said"
}
export -f one
export tests tool tmp
# Attention first: it takes longest.
names="attention attention_bwd attention_is_the_same_in_decode_and_in_a_batch fused_is_one_after_the_other
gradients_do_not_depend_on_the_number_of_threads
rows_of_norms_and_softmax_stand_alone $(echo gemm_{nt,nn,tn}:{7x33x65,3x1x1,13x40x17})
rmsnorm rmsnorm_bwd bias bias_bwd add cast swiglu swiglu_bwd embed embed_bwd scatter rope softmax
softmax_bwd softmax_entropy clip+adamw"
for name in $names; do
	case " $* " in *" $name "* | "  ") ;; *) continue ;; esac
	for t in racecheck memcheck initcheck synccheck; do
		echo "$t hopper $name"
		case $name in *attention*) echo "$t portable $name" ;; esac
	done
done | xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' _
failed=$(cat "$tmp"/*.said | grep -c '^not ok')
echo "$(cat "$tmp"/*.said | grep -c '^ok') passed, $failed failed"
[ "$failed" -eq 0 ]
