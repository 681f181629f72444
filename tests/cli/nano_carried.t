#!/usr/bin/env python3
"""What bench/train/nano keeps for another machine, by directories that are made by hand: rewards of measurements that
are over, episodes of one that goes on, models of stages that are over; and how the script ends where a stage fails.

budget: 4 CPU-seconds"""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

need_pytorch()
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
if importlib.util.find_spec("numpy") is None:  # carry.py needs it
    os.execv(PYTHON, [PYTHON, os.path.abspath(__file__)])
os.environ["WARPWRIGHT"] = WW
loader = importlib.machinery.SourceFileLoader("nano", os.path.join(ROOT, "bench/train/nano"))
nano = importlib.util.module_from_spec(importlib.util.spec_from_loader("nano", loader))
loader.exec_module(nano)
top = tempfile.mkdtemp(prefix="ww-carried-")
SETTINGS = {"target": "cpu", "device": "cpu", "sampling": {}, "evaluations": [], "stages": {
    n: {"seconds": 9, "keys": {}} for n in ("corpus", "mistakes", "sft", "before", "agentic", "after")}}


def path(*names):
    return os.path.join(top, *names)


def put(name, text="{}\n"):
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "w") as f:
        f.write(text)


def episode(run, i, reward):
    rows = [{"type": "episode", "task": {"path": f"tasks.jsonl#{i}"}}]
    rows += [{"type": "end", "reward_final": reward}] if reward else []
    put(f"{run}/episodes/step-00000001/000{i}/episodes/1/episode.jsonl",
        "".join(json.dumps(r) + "\n" for r in rows) + ("" if reward else '{"type": "mess'))


def session(out, **more):
    args = nano.argparse.Namespace(out=path(out), seconds=600, carry=path("kept"), carried=None, deliver=None, piece=15,
                                   prepared=None, until=None, **more)
    return nano.Session(args, SETTINGS)


def kept(s, **states):
    """Names of files that another machine gets."""
    for stage, state in states.items():
        s.stage(stage)["state"] = state
    s.save()
    nano.carry_on(s)
    data = nano.carry.take_pieces(path("kept"))
    with nano.tarfile.open(fileobj=nano.io.BytesIO(data)) as tar:
        return {n for n in tar.getnames() if not n.startswith("logs")}


for model in ("policy", "sft/model", "before/model"):
    for file in ("config.json", "model.safetensors"):
        put(f"out/{model}/{file}")
put("out/corpus.jsonl")
for i, reward in enumerate((1, -1, None)):
    episode("out/before", i, reward)
s = session("out")
over = dict.fromkeys(("corpus", "mistakes"), "ended")
got = kept(s, **over, sft="running")
ok({"policy/model.safetensors", "policy/config.json", "corpus.jsonl"} <= got
   and not [n for n in got if n.startswith("sft/")], "a stage of texts that is cut begins again, from where it began",
   got)
got = kept(s, sft="ended", before="running")
ok({"sft/model/model.safetensors", "sft/model/config.json"} <= got and "corpus.jsonl" not in got
   and "policy/model.safetensors" not in got, "behind it the weights that it has made are kept", got)
ok(len([n for n in got if n.endswith("episode.jsonl")]) == 3, "a measurement that is cut goes on with its episodes",
   got)

s.run = lambda *a, **k: "cut"
nano.measure(s, "before")
got = kept(s, before="cut")
ok("before/rewards.jsonl" in got and not [n for n in got if n.endswith("episode.jsonl")],
   "of one that is over its rewards are kept", got)
here = nano.held_out.rewards(path("out/before"))
shutil.rmtree(path("out/before/episodes"))
ok(nano.held_out.rewards(path("out/before")) == here == {"0": [1], "1": [-1]},
   "which say the same as its episodes, one of which was cut in the middle of a line", here)

# a stage that samples for the next ones and leaves the policy as it is
s.settings = {**SETTINGS, "stages": {**SETTINGS["stages"], "rft": {"seconds": 9, "keys": {}, "learns": False}}}
put("out/rft/model/config.json")
nano.reward_stage(s, "rft")
with open(path("out/recipes/rft.yaml")) as f:
    rft = json.load(f)
ok(rft["lr"] == "1e-12" and rft["model"] == s.newest("agentic") == path("out/sft/model"),
   "a stage that does not learn is no policy's", rft)
s.settings = SETTINGS

# pieces of a call that was killed while it wrote them
put("kept/carry.7.new", "half")
nano.carry_on(s)
ok("carry.7.new" not in os.listdir(path("kept")), "a piece that was half written is taken away",
   os.listdir(path("kept")))


def broken(stages, **more):
    """A call whose program fails each time."""
    put("false", "#!/bin/sh\necho it is broken >&2\nexit 1\n")
    os.chmod(path("false"), 0o755)
    given = {"policy": path("out/policy"), "lessons": path("out/corpus.jsonl"), "held-out": path("out/corpus.jsonl")}
    put("settings.json", json.dumps({
        **SETTINGS, "stages": stages, "config": "none", "text": {}, "lessons": {}, "given": given,
        "corpus": {"recipe": "none", "patience": 0, "mistakes": {"seed": 1, "n": 1}, **more}}))
    p = subprocess.run([sys.executable, os.path.join(ROOT, "bench/train/nano"), path("broken"), "--settings",
                        path("settings.json"), "--deliver", path("got")], capture_output=True, text=True, check=False,
                       env={**os.environ, "WARPWRIGHT": path("false")})
    return p.returncode, p.stdout + p.stderr


code, said = broken({"corpus": {}, "mistakes": {"seconds": 9}, "sft": {"seconds": 9, "keys": {"steps": 1}},
                     "before": {"seconds": 9, "keys": {}}})
ok(code == 0 and all(f"{n}: failed" in said for n in ("mistakes", "sft", "before"))
   and os.path.exists(path("got/logs.tar.gz")), "a stage that fails costs neither the others nor the logs", said)
shutil.rmtree(path("broken"))
shutil.rmtree(path("got"))
code, said = broken({"corpus": {}, "sft": {"seconds": 9, "keys": {}}}, tasks={"seed": 2, "n": 1})
ok(code == 1 and "corpus: it is broken" in said and "sft" not in said and os.path.exists(path("got/logs.tar.gz")),
   "without a corpus it stops, and the logs are there", said)
# `says` where its time is over
put("serves", f"""#!{sys.executable}
import http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        time.sleep(60)
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
s.daemon_threads = True
print(f"http://127.0.0.1:{{s.server_address[1]}}", flush=True)
s.serve_forever()
""")
os.chmod(path("serves"), 0o755)
put("taught.jsonl", "".join(json.dumps({"task_id": f"{i:08x}", "messages": [{}, {}]}) + "\n" for i in range(300)))
p = subprocess.Popen([os.path.join(ROOT, "bench/train/says"), "none", path("taught.jsonl"), "-o", path("said.jsonl"),
                      "--batch", "8"], stderr=subprocess.PIPE, text=True,
                     env={**os.environ, "WARPWRIGHT": path("serves")}, start_new_session=True)
while not os.path.exists(path("said.jsonl")):
    time.sleep(0.05)
time.sleep(1)
p.send_signal(signal.SIGINT)
try:
    said = p.communicate(timeout=10)[1]
    ended = True
except subprocess.TimeoutExpired:
    os.killpg(p.pid, signal.SIGKILL)
    ended, said = False, ""
ok(ended, "what a policy says ends at once when its time is over", said)

for what, args, says in (
        ("a piece does not begin anew where nothing was carried", ("learn-x2", path("there"), path("got")),
         "holds no carry.json"),
        ("nor from what is no policy", ("arm", path("there"), "full", "1", path("got")), "is no policy")):
    p = subprocess.run([os.path.join(ROOT, "bench/train/pieces"), *args], capture_output=True, text=True, check=False,
                       env={**os.environ, "WORK": path("work")})
    ok(p.returncode == 2 and p.stderr == f"pieces: {path('got')} {says}\n", what, p.stderr)
shutil.rmtree(top)
finish()
