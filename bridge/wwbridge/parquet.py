"""The rows of a Parquet file as JSON (docs/formats/bridge.md, "set_open"), read by pyarrow from an open descriptor."""

import json
import os

from . import Refuse, one_line, source

PIECE_BYTES, ROW_BYTES, ROWS = 4 << 20, 12 << 20, 64


class Rows:
    def __init__(self, fd):
        try:
            import pyarrow.parquet
        except ImportError:
            source.refuse_package("a Parquet task set", "pyarrow", kind="missing")
        try:
            self.file = pyarrow.parquet.ParquetFile(os.fdopen(fd, "rb"))
            names = self.file.schema_arrow.names
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
        """Some rows; none at the end.  One that cannot be sent is None."""
        rows, size = [], 0
        for row in self.rows:
            row = {k: v for k, v in row.items() if v is not None}
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
