"""Read and write task sets in Parquet, by pyarrow through open descriptors (docs/formats/bridge.md, "set_open",
"set_write")."""

import itertools
import json
import os

from . import Refuse, one_line, source

PIECE_BYTES, ROW_BYTES, ROWS = 4 << 20, 12 << 20, 64
JSON_TEXT = {b"warpwright": b"json"}  # metadata of a column whose texts are JSON


def need_pyarrow():
    try:
        import pyarrow.parquet
    except ImportError:
        source.refuse_package("a Parquet task set", "pyarrow", kind="missing")
    return pyarrow


def kind_of(value):
    """The Arrow type that holds a value; "json" if none does."""
    if isinstance(value, list):
        return "texts" if all(isinstance(v, str) for v in value) else "json"
    return {str: "text", bool: "flag", int: "integer", float: "number"}.get(type(value), "json")


def write(lines, fd):
    """Write JSON lines as Parquet, in two passes: the columns' types, then the rows."""
    arrow = need_pyarrow()
    types = {"text": arrow.string(), "texts": arrow.list_(arrow.string()), "flag": arrow.bool_(),
             "integer": arrow.int64(), "number": arrow.float64(), "json": arrow.string()}
    kinds = {}
    with os.fdopen(lines, encoding="utf-8") as f, os.fdopen(fd, "wb") as out:
        for line in f:
            for k, v in json.loads(line).items():
                if v is not None and kinds.setdefault(k, kind_of(v)) != kind_of(v):
                    kinds[k] = "number" if {kinds[k], kind_of(v)} == {"integer", "number"} else "json"
        schema = arrow.schema([arrow.field(k, types[t], metadata=JSON_TEXT if t == "json" else None)
                               for k, t in kinds.items()])

        def cells(line):
            return {k: json.dumps(v) if kinds.get(k) == "json" else v for k, v in json.loads(line).items()
                    if v is not None}

        f.seek(0)
        with arrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:
            while rows := [cells(line) for line in itertools.islice(f, 16 * ROWS)]:
                writer.write_batch(arrow.RecordBatch.from_pylist(rows, schema))


class Rows:
    def __init__(self, fd):
        arrow = need_pyarrow()
        try:
            self.file = arrow.parquet.ParquetFile(os.fdopen(fd, "rb"))
            schema = self.file.schema_arrow
            names = schema.names
            self.json = {f.name for f in schema if JSON_TEXT.items() <= (f.metadata or {}).items()}
        except Exception as e:
            raise Refuse("request", f"cannot be read as Parquet: {type(e).__name__}: {one_line(e, 200)}")
        if "code" not in names:
            raise Refuse("request", f"has no column \"code\", but {', '.join(names[:20]) or 'none at all'}")
        self.rows = self._each()

    def _each(self):
        try:
            for batch in self.file.iter_batches(batch_size=ROWS):
                yield from batch.to_pylist()
        except Exception as e:
            raise Refuse("request", f"is damaged: {type(e).__name__}: {one_line(e, 200)}")

    def piece(self):
        """The next rows; none at the end.  A row that cannot be sent is None."""
        rows, size = [], 0
        for row in self.rows:
            row = {k: json.loads(v) if k in self.json else v for k, v in row.items() if v is not None}
            try:
                text = json.dumps(row, default=str, allow_nan=False)
            except ValueError:
                text = "null"
            text = text if len(text) <= ROW_BYTES else "null"
            rows.append(json.loads(text))
            size += len(text)
            if size >= PIECE_BYTES:
                break
        return rows
