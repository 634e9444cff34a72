"""A tokenizer as GGUF's metadata.

One disadvantage: of how a byte-level tokenizer splits text llama.cpp knows names
only, and those that are known here are few.
"""

import json

from penstock_prepare import PrepareError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # llama.cpp's token types


def _splitter(described):
    """llama.cpp's name for how a byte-level tokenizer splits text."""
    split = json.dumps(described.get("pre_tokenizer"))
    for sign, name in (("\\\\p{N}{1,3}", "llama-bpe"), ("\\\\p{N}", "qwen2"),
                       ('"individual_digits": true', "smollm"), ('"Split"', None),
                       ('"ByteLevel"', "gpt-2")):
        if sign in split:
            if name:
                return name
            break
    raise PrepareError("llama.cpp has no name that is known here for the way this tokenizer "
                       "splits text (pre_tokenizer)")


def _puts_blank_first(described):
    """Does text without a blank in front get one?"""
    said = json.dumps([described.get("normalizer"), described.get("pre_tokenizer")])
    return '"Prepend"' in said or '"prepend_scheme": "first"' in said or '"prepend_scheme": "always"' in said


def _token_kinds(tokenizer, model, n_rows):
    tokens = [f"[PAD{i}]" for i in range(n_rows)]
    kinds = [UNUSED] * n_rows
    for token, number in tokenizer.vocab.items():
        if number < n_rows:
            tokens[number], kinds[number] = token, NORMAL
    if model.get("byte_fallback"):
        for i, token in enumerate(tokens):
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                kinds[i] = BYTE
    for number, token in tokenizer.added_tokens().items():
        if number < n_rows:
            kinds[number] = CONTROL if token.special else USER_DEFINED
    unknown = tokenizer.vocab.get(model.get("unk_token"), n_rows)
    if unknown < n_rows:
        kinds[unknown] = UNKNOWN
    return tokens, kinds


def add_tokenizer(writer, tokenizer, n_rows):
    """`n_rows`: of the embedding, which may be more than there are tokens."""
    described = tokenizer.described()
    model = described["model"]
    if model.get("type") != "BPE":
        raise PrepareError(f"a {model.get('type')} tokenizer is not written to GGUF; BPE is")
    tokens, kinds = _token_kinds(tokenizer, model, n_rows)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("llama" if model.get("byte_fallback") else "gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if model.get("byte_fallback"):
        # What is merged earlier is better; what no merge makes comes last.
        rank = {}
        for i, merge in enumerate(merges):
            rank.setdefault(merge.replace(" ", ""), float(-i))
        writer.add_token_scores([rank.get(token, float(-len(merges))) for token in tokens])
        writer.add_add_space_prefix(_puts_blank_first(described))
    else:
        writer.add_tokenizer_pre(_splitter(described))
        writer.add_token_merges(merges)
        writer.add_add_space_prefix(False)
    for number, add in ((tokenizer.bos_id, writer.add_bos_token_id),
                        (tokenizer.eos_id, writer.add_eos_token_id),
                        (tokenizer.pad_id, writer.add_pad_token_id)):
        if number is not None:
            add(number)
    writer.add_add_bos_token(bool(tokenizer.prefix))
    template = tokenizer.template(None)
    if template:
        writer.add_chat_template(template.source)
