"""A model directory as one GGUF file, for llama.cpp and what is built on it.

Names, shapes, metadata and the order of the heads' rows are those of the
architectures of llama.cpp (gguf_family.py) as the `gguf` package knows them; a
layer's experts are one tensor; vectors stay float32, matrices get the type that
is asked for.  The file gets its name when it is whole.

One disadvantage: a tensor is in memory whole while it is converted, of experts all of a layer.
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable

from penstock_prepare import PrepareError
from penstock_prepare.gguf_family import Shape, add_shape, rope_tensors
from penstock_prepare.gguf_words import add_tokenizer
from penstock_prepare.json_file import load_json
from penstock_prepare.target import Target
from penstock_prepare.weights import Weights

F16_MOST = 65504.0
STAYS_WHOLE = re.compile(r"\b(ffn_gate_inp|position_embd)\.")  # routers, learned positions
MAGIC = b"GGUF"
TYPES = ("F32", "F16", "BF16", "Q8_0")
# What files may hold beside parameters: tables of angles, masks of attention.
BUFFER = re.compile(r".*(\.rotary_emb\.inv_freq|\bh\.\d+\.attn\.(masked_)?bias)")


def _head_order(tensor, heads):
    """Rows of q and k as llama.cpp rotates them: neighbours, not halves."""
    split = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return split.swapaxes(1, 2).reshape(tensor.shape)


class _Experts:
    """The same matrix of all experts of a layer, which GGUF holds as one tensor: [experts, out, in]."""

    NAME = re.compile(r"(.*\.experts)\.(\d+)(\.\w+\.weight)")

    def __init__(self, weights):
        self._weights = weights
        self._held = {}
        for name in weights.names():
            found = self.NAME.fullmatch(name)
            if found:
                self._held.setdefault(found[1] + found[3], {})[int(found[2])] = name

    def is_part(self, name):
        return self.NAME.fullmatch(name) is not None

    def names(self):
        return list(self._held)

    def read(self, name):
        import numpy

        parts = self._held[name]
        if sorted(parts) != list(range(len(parts))):
            raise PrepareError(f"{name}: of experts there are only {sorted(parts)}")
        return numpy.stack([self._weights.read(parts[i]) for i in range(len(parts))])

    def shape(self, name):
        parts = self._held[name]
        return (len(parts), *self._weights.shape(next(iter(parts.values()))))


def _new_name(names, shape, name):
    new = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if new is None:
        raise PrepareError(f"tensor {name} has no name in GGUF's architecture {shape.family.architecture}")
    stem, _, last = new.rpartition(".")
    if last == "bias" and stem.rpartition(".")[2] not in shape.family.biases:
        raise PrepareError(f"llama.cpp knows no bias {name} in its architecture {shape.family.architecture}")
    return new


def _read(shape, source, name, new):
    """A tensor as llama.cpp expects it under its new name."""
    family, tensor = shape.family, source.read(name)
    if family.head_order and ".attn_q." in new:
        return _head_order(tensor, shape.heads)
    if family.head_order and ".attn_k." in new:
        return _head_order(tensor, shape.kv_heads)
    if family.norm_plus and "norm." in new:
        return tensor + family.norm_plus
    if family.transposed and new.startswith("blk.") and tensor.ndim == 2:
        return tensor.T
    return tensor


@dataclass
class _Tensor:
    """One of the file's: what it is called there, and where its numbers come from."""
    name: str
    shape: tuple
    read: Callable
    form: object  # GGUF's type


def _tensors(gguf, weights, shape, kind):
    """All of the file's, in its order."""
    architecture = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[shape.family.architecture]
    names = gguf.get_tensor_name_map(architecture, shape.layers)
    found = [_Tensor(name, factors.shape, lambda factors=factors: factors, gguf.GGMLQuantizationType.F32)
             for name, factors in rope_tensors(shape).items()]
    experts = _Experts(weights)
    for source, name in [(weights, n) for n in weights.names() if not experts.is_part(n)] + \
            [(experts, n) for n in experts.names()]:
        if BUFFER.fullmatch(name) or (name == "lm_head.weight" and shape.tied):
            continue
        new = _new_name(names, shape, name)
        size = source.shape(name)
        if shape.family.transposed and new.startswith("blk."):
            size = size[::-1]
        found.append(_Tensor(new, size, partial(_read, shape, source, name, new), _form(gguf, new, size, kind)))
    return found


def _form(gguf, name, size, kind):
    """Vectors and small tables stay whole; rows that are no whole blocks cannot be Q8_0."""
    form = gguf.GGMLQuantizationType["F32" if len(size) == 1 or STAYS_WHOLE.search(name) else kind]
    return gguf.GGMLQuantizationType.F16 if form.name == "Q8_0" and size[-1] % 32 else form


def _stored(gguf, tensor):
    """A tensor's numbers in the file's type."""
    numbers = tensor.read()
    if numbers.shape != tuple(tensor.shape):
        raise PrepareError(f"{tensor.name} has the shape {numbers.shape}, not {tensor.shape}")
    if tensor.form == gguf.GGMLQuantizationType.F16 and abs(numbers).max(initial=0) > F16_MOST:
        raise PrepareError(f"{tensor.name} has the number {abs(numbers).max():g}, which {tensor.form.name} "
                           "cannot hold: take BF16 or F32")
    return gguf.quants.quantize(numbers, tensor.form)


def _describe(writer, gguf, folder, tokenizer, kind):
    """All metadata; the tensors to write, and notes for people."""
    shape = Shape(load_json(folder / "config.json"))
    notes = add_shape(writer, gguf, shape)
    tensors = _tensors(gguf, Weights(folder), shape, kind)
    n_rows = next((t.shape[0] for t in tensors if t.name == "token_embd.weight"), None)
    if not n_rows:
        raise PrepareError(f"there is no embedding among the tensors of {folder}")
    writer.add_name(folder.resolve().name)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}" if kind != "F32" else "ALL_F32"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(n_rows)
    add_tokenizer(writer, tokenizer, n_rows)
    for t in tensors:
        size = gguf.quants.quant_shape_to_byte_shape(t.shape, t.form)
        try:
            writer.add_tensor_info(t.name, t.shape, "float32", math.prod(size), raw_dtype=t.form)
        except ValueError:
            raise PrepareError(f"{folder} has two tensors that are {t.name} in GGUF") from None
    return tensors, notes


def write_gguf(folder, tokenizer, kind, output, overwrite=False):
    """The model in `folder` as `output`; says what it wrote."""
    try:
        import gguf
    except ImportError:
        raise PrepareError("writing GGUF needs the package gguf (tools/setup, or pip install "
                           "gguf)") from None
    folder, output = Path(folder), Path(output)
    if not folder.is_dir():
        raise PrepareError(f"{folder} is no model directory: --gguf writes the model that --tokenizer names")
    writer = gguf.GGUFWriter(None, _architecture(folder))
    tensors, notes = _describe(writer, gguf, folder, tokenizer, kind)
    with Target(output, MAGIC, "GGUF file", overwrite=overwrite) as target:
        try:
            writer.write_header_to_file(Path(target.temporary))
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for tensor in tensors:
                writer.write_tensor_data(_stored(gguf, tensor))
            writer.close()
            target.commit()
        except OSError as error:
            raise PrepareError(f"cannot write {output}: {error.strerror or error}") from None
        finally:
            with suppress(OSError):  # what it still holds may not fit; the first failure is told
                writer.close()
    return "; ".join([f"{output}: {len(tensors)} tensors, {kind}, {output.stat().st_size} bytes"] + notes)


def _architecture(folder):
    return Shape(load_json(folder / "config.json")).family.architecture
