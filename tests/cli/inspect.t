#!/bin/sh
# budget: 7 CPU-seconds, all 9
# all: a task that hangs
# warpwright inspect: the table, the JSON, and one clear line with the right exit code for what is no task.
W=${WARPWRIGHT:-build/warpwright}
D=${WW_SOURCE_DIR:-.}/tests/data/tasks
n=0
ok() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi; }
says() { # exit code, word, command...
	code=$1 word=$2
	shift 2
	err=$("$@" 2>&1 >/dev/null)
	got=$?
	err=$(printf '%s\n' "$err" | grep -v '^ *[0-9.]* s  ') # steps of over 2 s
	lines=$(printf '%s\n' "$err" | wc -l)
	[ $got = "$code" ] && [ "$lines" = 1 ] && printf '%s' "$err" | grep -q "$word"
	ok $? "$word ($got)"
	[ $got = "$code" ] || printf '# exit %s, %s\n' "$got" "$err"
}

text=$($W inspect "$D/mixed.py")
ok $? "exit code of a good task, where a GPU is and where none is"
printf '%s' "$text" | grep -q 'batch_norm = aten.batch_norm.default(linear, bn.weight'
ok $? "the graph is in the table"
json=$($W inspect --target cpu --json --peaks "$D#mixed")
ok $? "exit code with --json, of a task named by its set and its id"
printf '%s' "$json" | "${WW_SOURCE_DIR:-.}/.venv/bin/python" -c '
import json, sys
o = json.load(sys.stdin)
g = o["graph"]
assert len(g["outputs"]) == 2 and g["totals"]["flops"] > 0 and g["scalars"][0]["value"] == 0.5
assert o["device"]["threads"] >= 1 and o["device"]["memory_bytes_per_s"] > 0 and o["peaks"]["fp32_flops"] > 0
assert o["versions"]["torch"]'
ok $? "one JSON object with graph, device, versions and peaks"
says 2 "no file" $W inspect --target cpu "$D/nothing.py"
says 2 "syntax error in line 4" $W inspect --target cpu "$D/syntax.py"
[ "${1:-}" ] && says 2 "did not load and run once within 2 s" $W inspect --target cpu --max-seconds 2 "$D/hangs.py"
set=$(mktemp)
trap 'rm -f "$set"' EXIT
printf 'PAR1' > "$set"
says 2 'holds no task "nothing"' $W inspect --target cpu "$D#nothing"
if "${WW_SOURCE_DIR:-.}/.venv/bin/python" -c 'import pyarrow' 2> /dev/null; then
	says 2 "cannot be read as Parquet" $W inspect --target cpu "$set#1"
else
	says 3 "pip install pyarrow" $W inspect --target cpu "$set#1"
fi
says 3 "WW_PYTHON" env WW_PYTHON=/nowhere $W inspect --target cpu "$D/ok.py"
if command -v nvidia-smi > /dev/null; then
	n=$((n + 1))
	echo "ok $n # SKIP there is a GPU"
else
	says 3 "use --target cpu" $W inspect --target cuda "$D/ok.py"
fi
echo "1..$n"
