"""A tokenizer as a model's directory has it, with its begin and end tokens.

The begin token is added where tokenizer_config.json's add_bos_token says so, or
where that says nothing and the tokenizer's own post-processor adds one; never a
second time when the text begins with it.  The end token closes every document,
but for conversations whose template has closed the last turn itself.

Ids come from the Hugging Face `tokenizers` library and nowhere else.  Which of
them are trained is told by where their text begins, never by their value.

One disadvantage: a token that straddles the beginning of a trained range is not
trained, although a part of it is inside.
"""

import hashlib
import json
from pathlib import Path

from penstock_prepare import PrepareError
from penstock_prepare.aside import aside
from penstock_prepare.json_file import load_json, parse_json
from penstock_prepare.template import find_template

# The end tokens of known families, for a tokenizer.json without its config.
KNOWN_END_TOKENS = ["<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"]
# What else ends a turn where a tokenizer has it.
KNOWN_TURN_ENDS = ["<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>", "<end_of_turn>",
                   "<|end_of_turn|>"]
TOKEN_NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
               "mask_token"]


class Tokenizer:
    def __init__(self, path, bos=None, eos=None):
        path = Path(path)
        self._folder = path
        self._folder_is_model = path.is_dir()
        self._config = self._json("tokenizer_config.json") if self._folder_is_model else {}
        self._model_config = self._json("config.json") if self._folder_is_model else {}
        self._generation_config = self._json("generation_config.json") if self._folder_is_model else {}
        self._tokenizer, self.sha256 = self._load(path)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

        self.vocab = self._tokenizer.get_vocab(True)
        if not self.vocab:
            raise PrepareError(f"the tokenizer {path} has no tokens")
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
        # A post-processor may leave blanks out of the offsets; ids need none.
        self._tokenizer.post_processor = _exact_offsets()
        self.special_ids = {number for number, token
                            in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        self._special_texts = tuple(self.name(number) for number in self.special_ids)
        self._end_ids = self._ends()
        self.end_texts = [self.name(number) for number in self._end_ids]

    def _json(self, name):
        return load_json(self._folder / name, {})

    def _load(self, path):
        """The library's tokenizer, and the hash by which token files name it."""
        from tokenizers import Tokenizer as Library  # slow to import: only when needed

        if path.is_dir():
            names = [n for n in (["tokenizer.json"], ["vocab.json", "merges.txt"])
                     if all((path / name).is_file() for name in n)]
            if not names and (path / "tokenizer.model").is_file():
                raise PrepareError(f"{path} has only tokenizer.model: have transformers make a tokenizer.json of it "
                                   f"(AutoTokenizer.from_pretrained('{path}').save_pretrained('{path}'))")
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
            # Read here: the library takes no path that is not UTF-8.
            read = [file.read_bytes() for file in files]
            for file, data in zip(files, read):
                digest.update(data)
                if not data.strip():
                    raise PrepareError(f"cannot load the tokenizer {file}: it is empty")
            if len(files) == 2:
                vocab, merges = (data.decode("utf-8") for data in read)
                return _byte_level_bpe(parse_json(vocab, files[0]), merges), digest.digest()
            return Library.from_buffer(read[0]), digest.digest()
        except PrepareError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise PrepareError(f"cannot load the tokenizer {files[0]}: {error}") from None

    def _token(self, key):
        """The text of a special token in tokenizer_config.json, or None."""
        token = self._config.get(key)
        if isinstance(token, dict):
            token = token.get("content")
        return token if isinstance(token, str) else None

    def _special(self, key, asked):
        """The id of a special token by option, tokenizer_config.json or config.json."""
        if asked is not None:
            if asked not in self.vocab:
                raise PrepareError(f"the tokenizer has no token {asked!r}")
            return self.vocab[asked]
        token = self._token(key)
        if token in self.vocab:
            return self.vocab[token]
        number = self._model_config.get(key + "_id")
        if isinstance(number, list):
            number = number[0] if number else None
        return number if isinstance(number, int) and 0 <= number < self.vocab_size else None

    def _ends(self):
        """Ids that end a turn: the end token's and those of turns."""
        ends = {self.eos_id} - {None}
        for config in (self._model_config, self._generation_config):
            ends |= self._named_ends(config)
        names = KNOWN_END_TOKENS + KNOWN_TURN_ENDS
        return ends | {self.vocab[name] for name in names if name in self.vocab}

    def _named_ends(self, config):
        """The ids under eos_token_id: a number, a list, or nothing."""
        numbers = config.get("eos_token_id")
        numbers = numbers if isinstance(numbers, list) else [numbers]
        return {n for n in numbers if isinstance(n, int) and self.name(n) is not None}

    def is_generation_end(self, text):
        """Does generation stop at this token?  True where the model's files do not say."""
        ends = self._named_ends(self._generation_config) or self._named_ends(self._model_config)
        return not ends or self.vocab.get(text) in ends

    def name(self, number):
        """The text of one token in the vocabulary; None if there is none."""
        return self._tokenizer.id_to_token(number)

    def added_tokens(self):
        """Tokens that are no part of the model's own vocabulary, by number."""
        return self._tokenizer.get_added_tokens_decoder()

    def described(self):
        """The library's tokenizer.json, but for its post-processor."""
        return json.loads(self._tokenizer.to_str())

    def template(self, asked):
        """The chat template --chat-template names, or the model's; None if neither."""
        tokens = {key: token for key in TOKEN_NAMES if (token := self._token(key)) is not None}
        if "eos_token" not in tokens and self.eos_id is not None:
            tokens["eos_token"] = self.name(self.eos_id)
        return find_template(asked, self._templates(), tokens, self._is_token)

    def _is_token(self, text):
        """Does the library make one token of this text, wherever it stands?"""
        ids = self._tokenizer.encode("a" + text, add_special_tokens=False).ids
        return text in self.vocab and ids[-1:] == [self.vocab[text]]

    def _templates(self):
        """The model's chat templates: {name: (source, where it is)}."""
        found = {}
        if not self._folder_is_model:
            return found
        where = self._folder / "tokenizer_config.json"
        listed = self._config.get("chat_template")
        if isinstance(listed, str):
            found["default"] = (listed, where)
        for entry in listed if isinstance(listed, list) else []:
            if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("name", "template")):
                raise PrepareError(f"{where}: chat_template is a list of objects with name and template")
            found[entry["name"]] = (entry["template"], f"{where} ({entry['name']})")
        where = self._folder / "chat_template.json"
        alone = self._json(where.name).get("chat_template")
        if isinstance(alone, str):
            found["default"] = (alone, where)
        files = [("default", self._folder / "chat_template.jinja")]
        files += [(path.stem, path)
                  for path in sorted(self._folder.glob("additional_chat_templates/*.jinja"))]
        for name, path in files:
            if path.is_file():
                try:
                    found[name] = (path.read_bytes().decode("utf-8"), path)
                except UnicodeDecodeError as error:
                    raise PrepareError(f"the chat template {path} is not UTF-8 at byte {error.start}") from None
        return found

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
        """For each sample (ids, for each of them 1 where it is trained, else 0)."""
        for sample in samples:
            _check_text(sample)
        encodings = iter(aside(self._tokenizer.encode_batch, [s.text for s in samples if s.ids is None],
                               add_special_tokens=False))
        for sample in samples:
            if sample.ids is not None:
                ids = sample.ids
                flags = sample.flags or b"\1" * len(ids)
            else:
                ids, flags = self._dressed(sample, next(encodings), end)
            if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
                worst = min(ids) if min(ids) < 0 else max(ids)
                raise PrepareError(f"{sample.origin} gives id {worst}, but the model's vocabulary "
                                   f"has only {self.vocab_size} ids")
            yield ids, bytes(flags)

    def _choice(self, sample, ids):
        """A choice is what its text adds to the ids of what is given."""
        n = len(self._tokenizer.encode(sample.given, add_special_tokens=False).ids)
        if n >= len(ids):
            raise PrepareError(f"{sample.origin}: a choice adds no token to its prompt")
        flags = bytearray(n) + bytearray(b"\1" * (len(ids) - n))
        if self.prefix and ids[:len(self.prefix)] != self.prefix:
            return self.prefix + ids, bytearray(len(self.prefix)) + flags
        return ids, flags

    def _dressed(self, sample, encoding, end):
        """One text's ids with begin and end token, and their flags."""
        ids = encoding.ids
        if sample.given is not None:
            return self._choice(sample, ids)
        masked = sample.spans is not None
        flags = _flags(encoding.offsets, sample.spans) if masked else bytearray(b"\1" * len(ids))
        if masked and sample.rendered:
            self._train_turn_ends(ids, flags)
        if self.prefix and ids[:len(self.prefix)] != self.prefix:
            ids = self.prefix + ids
            flags[:0] = bytes([not masked]) * len(self.prefix)
        if end and self.eos_id is not None and not self._is_closed(sample, ids):
            ids = ids + [self.eos_id]
            flags.append(_end_is_trained(sample))
        return ids, flags

    def _is_closed(self, sample, ids):
        """Does the sample end as it should already?"""
        if sample.rendered and sample.text.rstrip().endswith(self._special_texts):
            return True
        return bool(ids) and ids[-1] == self.eos_id

    def _train_turn_ends(self, ids, flags):
        """The end token right behind a trained turn belongs to it."""
        for i in range(len(ids) - 1, 0, -1):
            if flags[i - 1] and ids[i] in self._end_ids and ids[i - 1] not in self._end_ids:
                flags[i] = 1

    def decode(self, ids, skip_special_tokens=False):
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


def _check_text(sample):
    """JSON may hold half of a character, which no file of text and no tokenizer does."""
    try:
        sample.text.encode()
    except UnicodeEncodeError as error:
        raise PrepareError(f"{sample.origin}: character {error.start} of the text is half of one "
                           f"(\\u{ord(sample.text[error.start]):x}, a surrogate without its partner)") from None


def _flags(offsets, spans):
    """1 for each token that begins in one of the spans (in order, apart)."""
    flags = bytearray(len(offsets))
    at = 0
    for i, (begin, _) in enumerate(offsets):
        while at < len(spans) and spans[at][1] <= begin:
            at += 1
        flags[i] = at < len(spans) and spans[at][0] <= begin
    return flags


def _end_is_trained(sample):
    """Conversations may end in a turn that is not trained; all else ends in what is."""
    if sample.spans is None or not sample.rendered:
        return True
    return bool(sample.spans) and not sample.text[sample.spans[-1][1]:].strip()


def _exact_offsets():
    from tokenizers import processors

    return processors.ByteLevel(trim_offsets=False)


def _byte_level_bpe(vocab, merges):
    """GPT-2's tokenizer from what its two files hold."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    lines = [line.rstrip("\r") for line in merges.split("\n")]
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    library = Library(models.BPE(vocab, pairs))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    special = [t for t in KNOWN_END_TOKENS if library.token_to_id(t) is not None]
    library.add_special_tokens(special)
    return library
