"""The tokenizer as a partner of a running program: a JSON object per line in,
one per line out.

    {"encode": TEXT}                  {"ids": [...]}, as a prompt: no end token
    {"chat": [MESSAGES]}              {"ids": [...]}, up to where the assistant speaks
    {"begin": [IDS]}                  {}: an answer to these ids begins
    {"add": [IDS]}                    {"text": what these add to it}
    {"end": true}                     {"text": what was held back}

Text comes in whole characters: bytes of one that is not whole yet wait for the
next ids.  A request that cannot be met is answered with {"error": WHY}.

One disadvantage: what an answer adds is found by decoding its last tokens
twice, with and without the new ones.
"""

import json
import sys

from penstock_prepare import PrepareError
from penstock_prepare.samples import Sample
from penstock_prepare.template import Refusal

BROKEN = "\ufffd"  # what a decoder makes of bytes that are no character (yet)
CONTEXT = 8  # tokens before an answer that can change how its first are written


WANTED = {"encode": str, "chat": list, "begin": list, "add": list, "end": bool}


class Answer:
    """Text of a list of ids that grows."""

    def __init__(self, tokenizer, before):
        self._tokenizer = tokenizer
        self._ids = before[-CONTEXT:]
        self._begin = 0  # of what is decoded
        self._told = len(self._ids)  # ids whose text was handed out

    def _text(self, begin, end):
        return self._tokenizer.decode(self._ids[begin:end], skip_special_tokens=True)

    def _more(self, last):
        before = self._text(self._begin, self._told)
        after = self._text(self._begin, len(self._ids))
        if not after.startswith(before):
            before = ""
            after = self._text(self._told, len(self._ids))
        if len(after) == len(before) or (after.endswith(BROKEN) and not last):
            return ""
        self._begin, self._told = self._told, len(self._ids)
        return after[len(before):].replace("\0", BROKEN)

    def add(self, ids):
        self._ids += ids
        return self._more(last=False)

    def end(self):
        return self._more(last=True)


class Server:
    def __init__(self, tokenizer, template_name):
        self._tokenizer = tokenizer
        self._template_name = template_name
        self._template = None
        self._answer = Answer(tokenizer, [])

    def _encode(self, text, rendered):
        sample = Sample(text, "the text", rendered=rendered)
        (ids, _), = self._tokenizer.encode([sample], end=False)
        return {"ids": ids}

    def _chat(self, messages):
        self._template = self._template or self._tokenizer.template(self._template_name)
        if not self._template:
            raise PrepareError("the model has no chat template: name one by --chat-template "
                               "FILE or chatml")
        text, _ = self._template.render(messages, None, True)
        return self._encode(text, True)

    def answer(self, request):
        if not isinstance(request, dict) or len(request) != 1:
            raise PrepareError("a request is an object with one key")
        (kind, what), = request.items()
        if not isinstance(what, WANTED.get(kind, ())):
            raise PrepareError(f"there is no request {kind} of {type(what).__name__}")
        if kind == "encode":
            return self._encode(what, False)
        if kind == "chat":
            return self._chat(what)
        if kind == "begin":
            self._answer = Answer(self._tokenizer, what)
            return {}
        return {"text": self._answer.add(what) if kind == "add" else self._answer.end()}


def serve(make_tokenizer, template_name):
    """Until standard input ends."""
    try:
        server = Server(make_tokenizer(), template_name)
        reply = {}
    except (PrepareError, ImportError) as error:
        server, reply = None, {"error": str(error)}
    print(json.dumps(reply), flush=True)
    for line in sys.stdin.buffer if server else ():
        try:
            reply = server.answer(json.loads(line))
        except UnicodeDecodeError as error:
            reply = {"error": f"the text is not UTF-8 (byte {line[error.start]:#x})"}
        except (PrepareError, Refusal, ValueError, TypeError, OverflowError, RecursionError) as error:
            reply = {"error": " ".join(str(error).split())}
        print(json.dumps(reply), flush=True)
