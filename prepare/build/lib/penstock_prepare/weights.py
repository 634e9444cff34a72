"""Tensors of a model directory's safetensors files, as float32.

Every place is held against the file's size before it is read, so that a file
that is cut off is a refusal and never a shorter tensor.

One disadvantage: a tensor is in memory whole, in its own form and as float32.
"""

import json
import math
import os

from penstock_prepare import PrepareError
from penstock_prepare.json_file import load_json

DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}
ITEM_BYTES = {"F32": 4, "F16": 2, "F64": 8, "BF16": 2}


class Weights:
    def __init__(self, folder):
        index = folder / "model.safetensors.index.json"
        files = load_json(index, {}).get("weight_map", {})
        if not isinstance(files, dict) or not all(isinstance(f, str) for f in files.values()):
            raise PrepareError(f"{index}: weight_map is an object of file names")
        self._entries = {}  # name: (path, offset, dtype, shape)
        for name in sorted(set(files.values())) or ["model.safetensors"]:
            self._open(folder / name)

    def _open(self, path):
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                n = int.from_bytes(file.read(8), "little")
                if n > size - 8:
                    raise PrepareError(f"{path} has {size} bytes and says that its header alone has {n}: "
                                       "download it again")
                header = json.loads(file.read(n))
        except (OSError, ValueError, RecursionError) as error:
            raise PrepareError(f"cannot read {path}: {error}") from None
        for name, entry in header.items() if isinstance(header, dict) else ():
            if name != "__metadata__":
                self._entries[name] = self._place(path, name, entry, 8 + n, size)
        if not self._entries:
            raise PrepareError(f"there is no tensor in {path}")

    def _place(self, path, name, entry, first, size):
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            n_bytes = math.prod(shape) * ITEM_BYTES[dtype]
        except KeyError:
            raise PrepareError(f"{path}: tensor {name} is none of {', '.join(DTYPES)} with shape and "
                               "data_offsets") from None
        except (TypeError, ValueError):
            raise PrepareError(f"{path}: tensor {name} is not described as safetensors are") from None
        if begin < 0 or end - begin != n_bytes or first + end > size:
            raise PrepareError(f"{path}: tensor {name} is {n_bytes} bytes at {first + begin} of {size}: "
                               "download it again")
        return path, first + begin, dtype, shape

    def names(self):
        return list(self._entries)

    def shape(self, name):
        return tuple(self._entries[name][3])

    def read(self, name):
        import numpy

        path, offset, dtype, shape = self._entries[name]
        raw = numpy.fromfile(path, DTYPES[dtype], math.prod(shape), offset=offset)
        if dtype == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        return raw.astype(numpy.float32).reshape(shape)
