"""Chat templates, rendered as transformers renders them: Jinja2 in a sandbox.

Text between {% generation %} and {% endgeneration %} is what the assistant
wrote; where it lies is handed back with the rendering.

One disadvantage: the two marks put around such text while rendering are the
Unicode non-characters FDD0 and FDD1, so a text that holds them is refused.
"""

import json
import os
import re
import time

from penstock_prepare import PrepareError

BEGIN, END = "\ufdd0", "\ufdd1"
GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")

# Templates that come with the tool, by the name of --chat-template; TURN_END ends a turn in each.
TURN_END = "<|im_end|>"
ROLES = ("system", "developer", "user", "assistant", "tool", "function")  # which any template may be given
OWN = {
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message.role + '\\n' }}"
        "{% if message.role == 'assistant' %}"
        "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
        "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}"
        "{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
}


class Refusal(Exception):
    """This sample cannot be rendered, or not masked; others may be."""


def _environment():
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

        def mark(self, caller):
            return BEGIN + caller() + END

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def strftime_now(form):
    """Today, or the day that SOURCE_DATE_EPOCH names, so that what is written
    can be written again."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime(form, time.gmtime(int(fixed)) if fixed else time.localtime())


class Template:
    def __init__(self, source, name, tokens):
        """`tokens`: the special tokens by their names (bos_token, ...)."""
        from jinja2 import TemplateError

        self.name = name
        self.source = source
        self.has_generation = bool(GENERATION_TAG.search(source))
        self.for_tools = None  # the template of conversations that have tools, if another
        self.note = None  # what people must know of it
        self._tokens = tokens
        try:
            self._template = _environment().from_string(source)
        except (TemplateError, RecursionError) as error:
            raise PrepareError(f"{name} is not a chat template: {error}") from None

    def takes_role(self, role):
        """Is it a usual one, or one that the template tells from others, or a key of a table of its?  What it has
        never heard of a template leaves out, or writes where the model knows nothing of it."""
        literal = rf"['\"]{re.escape(role)}['\"]"
        told = rf"(?:[!=]=\s*|\bin\s*[\[(][^\])]*){literal}|[{{,]\s*{literal}\s*:"
        return role in ROLES or bool(role and re.search(told, self.source))

    def render(self, messages, tools=None, add_generation_prompt=False):
        """(text, spans of what the assistant wrote, in characters)."""
        try:
            marked = self._template.render(
                messages=messages, tools=tools, documents=None,
                add_generation_prompt=add_generation_prompt, **self._tokens)
        except RecursionError:
            raise Refusal(f"what it says is nested too deep for the chat template {self.name}") from None
        except Exception as error:  # a template may fail in any way Python can
            if type(error).__name__ != "TemplateError" and any(_is_silent(m) for m in messages):
                raise Refusal(f"the chat template {self.name} cannot render a message without content") from None
            raise Refusal(f"{type(error).__name__}: {error}") from None
        return _unmark(marked)


def _is_silent(message):
    return isinstance(message, dict) and message.get("content") is None


def _unmark(marked):
    pieces, spans, length, begin = [], [], 0, None
    for piece in re.split(f"([{BEGIN}{END}])", marked):
        if piece == BEGIN and begin is None:
            begin = length
        elif piece == END and begin is not None:
            spans.append((begin, length))
            begin = None
        elif piece in (BEGIN, END):
            raise Refusal("the text holds the non-character U+FDD0 or U+FDD1")
        else:
            pieces.append(piece)
            length += len(piece)
    return "".join(pieces), spans


def _own(name, tokens, has_token):
    """A template of the tool's, whose turns end with a token in every tokenizer."""
    source, note = OWN[name], None
    if not has_token(TURN_END):
        end = tokens.get("eos_token")
        if end is None:
            raise PrepareError(f"the chat template {name} ends turns with {TURN_END}, which is no token of this "
                               "tokenizer, and the tokenizer names no end token to take instead (--eos)")
        source = source.replace(f"'{TURN_END}'", json.dumps(end, ensure_ascii=False))
        note = (f"warning: the chat template {name} ends turns with {end} here, since {TURN_END} is no token of this "
                "tokenizer")
    template = Template(source, name, tokens)
    template.note = note
    return template


def find_template(asked, model, tokens, has_token):
    """The template that --chat-template names, or the model's own; None if there
    is none.  `model` has the templates of a model directory by name; has_token(TEXT)
    says whether the tokenizer makes one token of a text."""
    if asked is None:
        if "default" not in model:
            return None
        template = Template(*model["default"], tokens)
        if "tool_use" in model:  # as transformers chooses
            template.for_tools = Template(*model["tool_use"], tokens)
        return template
    if os.path.isfile(asked):
        try:
            with open(asked, encoding="utf-8", newline="") as file:
                return Template(file.read(), asked, tokens)
        except (OSError, UnicodeDecodeError) as error:
            raise PrepareError(f"cannot read the chat template {asked}: {error}") from None
    if asked in model:
        return Template(*model[asked], tokens)
    if asked in OWN:
        return _own(asked, tokens, has_token)
    names = sorted(set(model) | set(OWN))
    raise PrepareError(f"there is no chat template {asked}: neither a file nor one of "
                       f"{', '.join(names)}")
