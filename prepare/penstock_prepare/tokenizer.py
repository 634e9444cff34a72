"""A tokenizer as a model's directory has it, with its begin and end tokens.

The begin token is added where tokenizer_config.json's add_bos_token says so, or
where that says nothing and the tokenizer's own post-processor adds one; never a
second time when the text begins with it.  The end token closes every document.

Ids come from the Hugging Face `tokenizers` library and nowhere else.
"""

import hashlib
import json
import os
from pathlib import Path

from penstock_prepare import PrepareError

# The end tokens of known families, for a tokenizer.json without its config.
KNOWN_END_TOKENS = ["<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"]


class Tokenizer:
    def __init__(self, path, bos=None, eos=None):
        path = Path(path)
        self._folder = path if path.is_dir() else path.parent
        self._config = self._json("tokenizer_config.json") if path.is_dir() else {}
        self._model_config = self._json("config.json") if path.is_dir() else {}
        self._tokenizer, self.sha256 = self._load(path)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

        self.vocab = self._tokenizer.get_vocab(True)
        self.vocab_size = max(self.vocab.values()) + 1
        limit = self._model_config.get("vocab_size")
        if isinstance(limit, int) and 0 < limit < self.vocab_size:
            self.vocab_size = limit
        self.bos_id = self._special("bos_token", bos)
        self.eos_id = self._special("eos_token", eos)
        self.pad_id = self._special("pad_token", None)
        if self.eos_id is None:
            self.eos_id = next((self.vocab[t] for t in KNOWN_END_TOKENS if t in self.vocab), None)
        self.prefix = self._prefix(bos)

    def _json(self, name):
        try:
            return json.loads((self._folder / name).read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise PrepareError(f"cannot read {self._folder / name}: {error}") from None

    def _load(self, path):
        """The library's tokenizer, and the hash by which token files name it."""
        from tokenizers import Tokenizer as Library  # slow to import: only when needed

        if path.is_dir():
            names = [n for n in (["tokenizer.json"], ["vocab.json", "merges.txt"])
                     if all((path / name).is_file() for name in n)]
            if not names:
                raise PrepareError(f"there is no tokenizer.json (nor vocab.json with "
                                   f"merges.txt) in {path}")
            files = [path / name for name in names[0]]
        elif path.is_file():
            files = [path]
        else:
            raise PrepareError(f"there is no tokenizer at {path}")
        digest = hashlib.sha256()
        try:
            for file in files:
                digest.update(file.read_bytes())
            if len(files) == 2:
                return _byte_level_bpe(*files), digest.digest()
            return Library.from_file(os.fspath(files[0])), digest.digest()
        except Exception as error:  # the library raises bare Exception
            raise PrepareError(f"cannot load the tokenizer {files[0]}: {error}") from None

    def _special(self, key, asked):
        """The id of a special token by option, tokenizer_config.json or config.json."""
        if asked is not None:
            if asked not in self.vocab:
                raise PrepareError(f"the tokenizer has no token {asked!r}")
            return self.vocab[asked]
        token = self._config.get(key)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str) and token in self.vocab:
            return self.vocab[token]
        number = self._model_config.get(key + "_id")
        if isinstance(number, list):
            number = number[0] if number else None
        return number if isinstance(number, int) and 0 <= number < self.vocab_size else None

    def _prefix(self, asked):
        """The ids every document begins with."""
        adds = self._config.get("add_bos_token")
        if asked is not None or adds is True:
            return [] if self.bos_id is None else [self.bos_id]
        if adds is False:
            return []
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        dressed = self._tokenizer.encode("a", add_special_tokens=True).ids
        for n in range(len(dressed) - len(plain) + 1):
            if dressed[n:n + len(plain)] == plain:
                return dressed[:n]
        return []

    def encode(self, samples, end=True):
        """For each sample (ids, index of the first token of its completion)."""
        encodings = self._tokenizer.encode_batch([s.text for s in samples],
                                                 add_special_tokens=False)
        for sample, encoding in zip(samples, encodings):
            ids = encoding.ids
            first = 0
            if sample.prompt_chars:
                # A token that straddles the border belongs to the prompt.
                first = next((i for i, (begin, _) in enumerate(encoding.offsets)
                              if begin >= sample.prompt_chars), len(ids))
            if self.prefix and ids[:len(self.prefix)] != self.prefix:
                ids = self.prefix + ids
                first += len(self.prefix)
            if end and self.eos_id is not None and (not ids or ids[-1] != self.eos_id):
                ids = ids + [self.eos_id]
            worst = max(ids, default=0)
            if worst >= self.vocab_size:
                raise PrepareError(f"{sample.origin} gives id {worst}, but the model's vocabulary "
                                   f"has only {self.vocab_size} ids")
            yield ids, first

    def decode(self, ids, skip_special_tokens=False):
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


def _byte_level_bpe(vocab, merges):
    """GPT-2's tokenizer from its two files."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    library = Library(models.BPE.from_file(os.fspath(vocab), os.fspath(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    special = [t for t in KNOWN_END_TOKENS if library.token_to_id(t) is not None]
    library.add_special_tokens(special)
    return library
