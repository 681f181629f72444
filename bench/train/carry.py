#!/usr/bin/env python3
"""Take a run of `train` to another machine, in pieces that are small enough:

    bench/train/carry.py pack RUN DIR [--moments] [--piece 15]      DIR/carry.0, carry.1 ... and carry.json
    bench/train/carry.py unpack DIR RUN
    bench/train/carry.py policy DIR MODEL                           the policy alone, also of what nano --carry wrote

Of the newest checkpoint go the fp32 masters of policy and critic (4 bytes a parameter, some 15% less packed), the
place of the run, its curriculum and its log; not what the masters say again (weights in bf16), nor episodes.  Without
--moments, which are 8 bytes a parameter more, AdamW's moments begin at zero: run.json lists the step in "carried", and
the next updates are shorter than they would be.  With --moments the run goes on to the same bits.  Behind `unpack` the
command that the run was begun with goes on, on the same paths; with --other-arithmetic where driver or GPU differ.

It needs numpy.
"""
import argparse
import glob
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import zlib

import numpy as np

OPTIMIZER = "optimizer/model.safetensors"
WEIGHTS = "model.safetensors"
TYPES = {"F32": np.dtype("<u4"), "BF16": np.dtype("<u2")}


def read_tensors(path):
    """(header's text, {name: array of raw numbers}) of a safetensors file."""
    with open(path, "rb") as f:
        text = f.read(int.from_bytes(f.read(8), "little")).decode()
        data = f.read()
    return text, {n: np.frombuffer(data[at:end], dtype) for n, dtype, at, end in rows_of(text)}


def rows_of(text):
    """(name, type, begin, end) of a header's tensors, in the order of the file."""
    rows = [(n, TYPES[t["dtype"]], *t["data_offsets"]) for n, t in json.loads(text).items() if n != "__metadata__"]
    return sorted(rows, key=lambda r: r[2])


def write_tensors(path, text, tensors):
    with open(path, "wb") as f:
        f.write(len(text.encode()).to_bytes(8, "little") + text.encode())
        for name, *_ in rows_of(text):
            f.write(tensors[name].tobytes())


def packed(numbers):
    """(lengths, bytes): bytes of equal weight together, of which zlib shortens the highest, sign and exponent."""
    planes = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T
    parts = [zlib.compress(p.tobytes(), 6 if i + 1 == len(planes) else 0) for i, p in enumerate(planes)]
    return [len(p) for p in parts], b"".join(parts)


def unpacked(data, lengths, dtype):
    at, planes = 0, []
    for n in lengths:
        planes.append(np.frombuffer(zlib.decompress(data[at:at + n]), np.uint8))
        at += n
    return np.stack(planes, axis=1).reshape(-1).view(dtype)


def rounded(bits):
    """fp32 as bf16, to the nearest even: what the program makes of its masters."""
    return ((bits + np.uint32(0x7fff) + ((bits >> 16) & 1)) >> 16).astype(TYPES["BF16"])


def parts_of(checkpoint):
    """Directories with a model: the policy's, and the critic's."""
    return [d for d in ("", "critic") if os.path.exists(os.path.join(checkpoint, d, WEIGHTS))]


def newest(run):
    found = sorted(glob.glob(os.path.join(run, "checkpoints", "step-*")))
    return found[-1] if found else None


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def add_learner(tar, checkpoint, part, moments):
    """A model with its optimizer, without what follows from the rest."""
    name = os.path.join("checkpoint", part)
    files = {WEIGHTS: os.path.join(checkpoint, part, WEIGHTS), OPTIMIZER: os.path.join(checkpoint, part, OPTIMIZER)}
    for path in files.values():
        if not os.path.exists(path):
            sys.exit(f"{path} is not there: weights in shards are not carried")
    masters = any(n.startswith("master.") for n in read_tensors(files[OPTIMIZER])[1])
    for file, path in files.items():
        text, tensors = read_tensors(path)
        kept = [n for n in tensors if (moments or n.startswith("master.") if file == OPTIMIZER else not masters)]
        row = {"header": text, "kept": []}
        blob = b""
        for n in kept:
            lengths, data = packed(tensors[n])
            row["kept"].append({"name": n, "lengths": lengths, "at": len(blob)})
            blob += data
        add(tar, os.path.join(name, file + ".json"), json.dumps(row).encode())
        add(tar, os.path.join(name, file + ".packed"), blob)


def add_run(tar, run, moments):
    """A run's newest checkpoint, log and description; returns its step."""
    checkpoint = newest(run)
    if not checkpoint:
        sys.exit(f"{run} has no checkpoint")
    with open(os.path.join(checkpoint, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
        said = json.load(f)
    if not moments:
        said.setdefault("carried", []).append(state["step"])
    with open(os.path.join(run, "log.jsonl"), "rb") as f:
        log = f.read(state["log_bytes"])
    add(tar, "run.json", (json.dumps(said) + "\n").encode())
    add(tar, "log.jsonl.z", zlib.compress(log))
    add(tar, "name", os.path.basename(checkpoint).encode())
    for part in parts_of(checkpoint):
        for path in sorted(glob.glob(os.path.join(checkpoint, part, "*.json"))):
            tar.add(path, os.path.join("checkpoint", part, os.path.basename(path)))
        add_learner(tar, checkpoint, part, moments)
    return state["step"]


def take_learner(directory):
    """The files of a model and of its optimizer, of what was carried of them."""
    kept = {}
    for file in (OPTIMIZER, WEIGHTS):
        path = os.path.join(directory, file)
        with open(path + ".json", encoding="utf-8") as f:
            row = json.load(f)
        with open(path + ".packed", "rb") as f:
            blob = f.read()
        at, tensors = {k["name"]: k for k in row["kept"]}, {}
        for name, dtype, begin, end in rows_of(row["header"]):
            if name in at:
                tensors[name] = unpacked(blob[at[name]["at"]:], at[name]["lengths"], dtype)
            elif file == OPTIMIZER:
                tensors[name] = np.zeros((end - begin) // dtype.itemsize, dtype)
            else:
                tensors[name] = rounded(kept["master." + name])
        if file == OPTIMIZER:
            kept = tensors
        write_tensors(path, row["header"], tensors)
        os.remove(path + ".json")
        os.remove(path + ".packed")


def take_run(tree, run):
    """The run's directory, of what add_run() wrote."""
    os.makedirs(os.path.join(run, "checkpoints"))
    for part in parts_of_packed(tree):
        take_learner(os.path.join(tree, "checkpoint", part))
    with open(os.path.join(tree, "name"), encoding="utf-8") as f:
        name = f.read()
    with open(os.path.join(tree, "log.jsonl.z"), "rb") as f, open(os.path.join(run, "log.jsonl"), "wb") as log:
        log.write(zlib.decompress(f.read()))
    shutil.copy(os.path.join(tree, "run.json"), run)
    os.symlink(os.path.join("checkpoints", name), os.path.join(run, "model"))
    shutil.move(os.path.join(tree, "checkpoint"), os.path.join(run, "checkpoints", name))


def parts_of_packed(tree):
    return [d for d in ("", "critic") if os.path.exists(os.path.join(tree, "checkpoint", d, WEIGHTS + ".packed"))]


# ---- pieces ----------------------------------------------------------------------------------------------------------


def put_pieces(data, to, megabytes, **more):
    """DIR/carry.0 ... and, last, carry.json with their hashes: pieces of two packings are never taken for one."""
    size = int(megabytes * 1e6)
    pieces = [data[at:at + size] for at in range(0, len(data), size)]
    os.makedirs(to, exist_ok=True)
    for i, piece in enumerate(pieces):
        with open(os.path.join(to, f"carry.{i}.new"), "wb") as f:
            f.write(piece)
    for i in range(len(pieces)):
        os.replace(os.path.join(to, f"carry.{i}.new"), os.path.join(to, f"carry.{i}"))
    for old in glob.glob(os.path.join(to, "carry.[0-9]*")):
        number = old.rsplit(".", 1)[1]
        if number == "new" or int(number) >= len(pieces):  # new: of a call that was killed
            os.remove(old)
    index = {"pieces": [hashlib.sha256(p).hexdigest() for p in pieces], "bytes": len(data), **more}
    with open(os.path.join(to, "carry.json.new"), "w", encoding="utf-8") as f:
        json.dump(index, f)
    os.replace(os.path.join(to, "carry.json.new"), os.path.join(to, "carry.json"))


def take_pieces(directory):
    """The bytes of put_pieces()."""
    with open(os.path.join(directory, "carry.json"), encoding="utf-8") as f:
        index = json.load(f)
    data = []
    for i, wanted in enumerate(index["pieces"]):
        path = os.path.join(directory, f"carry.{i}")
        if not os.path.exists(path):
            sys.exit(f"{path} is missing; {directory}/carry.json names {len(index['pieces'])} pieces")
        with open(path, "rb") as f:
            data.append(f.read())
        if hashlib.sha256(data[-1]).hexdigest() != wanted:
            sys.exit(f"{path} is not the piece that {directory}/carry.json names; take all of one packing")
    return b"".join(data)


def run_bytes(run, moments=False):
    """(step, a run as bytes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        step = add_run(tar, run, moments)
    return step, out.getvalue()


def put_run(data, run):
    """The directory of a run, of run_bytes()."""
    tree = run.rstrip("/") + ".carried"
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(tree, filter="data")
    take_run(tree, run)
    shutil.rmtree(tree)


def pack(run, to, moments, megabytes):
    step, data = run_bytes(run, moments)
    put_pieces(data, to, megabytes, step=step)
    print(f"{run}: step {step}, {len(data) / 1e6:.1f} MB")


def unpack(directory, run):
    if os.path.exists(run):
        sys.exit(f"{run} is there already")
    put_run(take_pieces(directory), run)


def policy(directory, to):
    """A model's directory: the policy of a run that was carried, or the one that `nano` carries before its run."""
    tree = to.rstrip("/") + ".carried"
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(take_pieces(directory))) as tar:
        tar.extractall(tree, filter="data")
    if os.path.exists(os.path.join(tree, "run.tar")):
        shutil.rmtree(os.path.join(tree, "agentic"), ignore_errors=True)
        with open(os.path.join(tree, "run.tar"), "rb") as f:
            put_run(f.read(), os.path.join(tree, "agentic"))
        found = [os.path.join(tree, "agentic", "model")]
    elif os.path.exists(os.path.join(tree, "run.json")):
        take_run(tree, os.path.join(tree, "run"))
        found = [os.path.join(tree, "run", "model")]
    else:
        found = [os.path.dirname(p) for p in glob.glob(os.path.join(tree, "**", WEIGHTS), recursive=True)
                 if "value" not in p.split(os.sep)]
    if len(found) != 1:
        sys.exit(f"{directory} holds {len(found)} policies")
    new = to.rstrip("/") + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    for name in os.listdir(found[0]):
        if os.path.isfile(os.path.join(found[0], name)) and name != "state.json":
            shutil.copy(os.path.join(found[0], name), new)
    shutil.rmtree(tree)
    os.rename(new, to)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["pack", "unpack", "policy"])
    p.add_argument("source")
    p.add_argument("to")
    p.add_argument("--moments", action="store_true", help="AdamW's moments, too: the same bits")
    p.add_argument("--piece", type=float, default=15, help="MB of a piece")
    args = p.parse_args()
    if args.what == "pack":
        pack(args.source, args.to, args.moments, args.piece)
    else:
        {"unpack": unpack, "policy": policy}[args.what](args.source, args.to)


if __name__ == "__main__":
    main()
