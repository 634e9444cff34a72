"""How a chat template ends an answer, and whether a model that learns it will stop.

A template is judged by one made-up conversation: behind the answer there has to
stand a token that ends a turn, and one that the model's files name as an end token,
since generation stops at no other.

One disadvantage: a template that refuses that conversation, or writes its words
otherwise than they are, is not judged.
"""

from penstock_prepare.template import Refusal

ASK, SAY, ASK_AGAIN = "qone", "qtwo", "qthree"
SHOWN_CHARS = 40


def _behind_answer(template, messages):
    """What stands between the answer and the next question, or the end; None: not known."""
    try:
        text, _ = template.render(messages)
    except Refusal:
        return None
    begin = text.find(SAY)
    end = text.find(ASK_AGAIN, begin) if len(messages) > 2 else len(text)
    return text[begin + len(SAY):end] if 0 <= begin <= end else None


def warning_of(template, tokenizer, n_long):
    """One line where answers would not end, else None; n_long: conversations that go on
    behind an answer."""
    talk = [{"role": role, "content": words}
            for role, words in (("user", ASK), ("assistant", SAY), ("user", ASK_AGAIN))]
    last = _behind_answer(template, talk[:2])
    behind = _behind_answer(template, talk) if n_long else last
    if behind is None or (not n_long and not behind.strip()):
        return None  # the end token is put behind the conversation
    end = next((text for text in tokenizer.end_texts if behind.lstrip().startswith(text)), None)
    if end is None:
        return (f"warning: the chat template {template.name} ends an answer with {behind[:SHOWN_CHARS]!r}, where no "
                f"end token of this tokenizer ({', '.join(tokenizer.end_texts) or 'it has none'}) stands: only the last "
                "turn of a conversation is trained to end")
    if not tokenizer.is_generation_end(end):
        return (f"warning: the chat template {template.name} ends an answer with {end}, which is no eos_token_id of "
                "the model's generation_config.json or config.json: generation will not stop there; add it")
    return None
