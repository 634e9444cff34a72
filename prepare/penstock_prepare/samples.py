"""What was read, as samples to encode: text with the places that are trained.

Kinds of records are counted and said aloud; a sample that its template refuses
is dropped and counted, with the reason.

One disadvantage: of the reasons for dropping only the first of each kind of
record comes with its place.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Optional

from penstock_prepare import PrepareError
from penstock_prepare.chat import Renderer
from penstock_prepare.dataset_info import NAME, mapping_for
from penstock_prepare.files import is_records, read_records, read_texts
from penstock_prepare.pipe import Pipe
from penstock_prepare.records import (IGNORED_LABEL, Alpaca, Chat, Ids, Pair, Question, Text,
                                      alpaca_chat, alpaca_text, classify, question_texts)
from penstock_prepare.template import ROLES, Refusal

DROPPED_PERCENT = 5  # above it a warning, as in penstock itself


@dataclass
class Sample:
    text: str
    origin: str  # for messages
    spans: Optional[list] = None  # trained [begin, end) characters; None: all
    rendered: bool = False  # by a chat template, which writes end tokens itself
    ids: Optional[list] = None  # tokens as they are; text has no meaning then
    flags: Optional[bytes] = None  # 1 for each of them that is trained
    given: Optional[str] = None  # of a choice: its tokens alone are not trained


class Samples:
    """Iterates over the samples of files; keeps count of what it saw."""

    def __init__(self, paths, template, end_texts, assistant_only=False, completion_only=False):
        self._paths = paths
        self._template = template
        self._assistant_only = assistant_only
        self._completion_only = completion_only
        self._renderers = {  # by whether there are tools
            tools: Renderer(t, end_texts, assistant_only, completion_only)
            for tools, t in ((False, template), (True, template and template.for_tools)) if t}
        self.notes = []
        self.kinds = Counter()  # of records, by how they are said aloud
        self.n_samples = 0
        self.n_chats = 0
        self.n_long_chats = 0  # that go on behind an answer
        self.n_dropped = 0
        self.reasons = Counter()
        self._first = {}
        self._strange_taken = set()  # (renderer, role)
        self._n_strange = 0  # messages
        self._first_strange = None
        self.questions = []  # of multiple choice, in order

    def __iter__(self):
        for path in self._paths:
            if is_records(path):
                yield from self._records(path)
                continue
            for origin, text in read_texts(path, self.notes):
                self.n_samples += 1
                yield Sample(text, origin)

    def _records(self, path):
        mapping, name = mapping_for(path)
        if isinstance(path, Pipe) and path.note:
            self.notes.append(path.note)
        if mapping:
            self.notes.append(f"columns of {path.name} as {NAME} says of {name}")
        for origin, record in read_records(path):
            yield from self.of_record(mapping(record) if mapping else record, origin)

    def of_record(self, record, origin):
        """None where it is dropped; several of a question."""
        try:
            kind, what = classify(record, origin)
            if isinstance(what, Question):
                yield from self._question(kind, what)
                return
            self.n_samples += 1
            sample = self._sample(kind, what)
        except Refusal as refusal:
            self.drop(str(refusal), origin)
            return
        except RecursionError:
            raise PrepareError(f"{origin} is nested too deep") from None
        yield sample

    def _question(self, kind, question):
        if self._assistant_only or self._completion_only:
            raise PrepareError(f"{question.origin}: of a question with choices the choice is "
                               "scored, whatever --assistant-only-loss and "
                               "--completion-only-loss say")
        self.kinds[kind] += 1
        self.questions.append(question)
        for given, text in question_texts(question):
            self.n_samples += 1
            yield Sample(text, question.origin, given=given)

    def drop(self, reason, origin):
        """Counts a sample that is left out."""
        self.n_dropped += 1
        self.reasons[reason] += 1
        self._first.setdefault(reason, origin)

    def _sample(self, kind, what):
        if isinstance(what, Text) and not what.text.strip():
            raise Refusal("no text")
        if isinstance(what, Alpaca) and self._template:
            what = alpaca_chat(what)
        if isinstance(what, Chat):
            return self._chat(kind, what)
        if self._assistant_only:
            raise PrepareError(f"{what.origin} ({kind}) has no assistant's turns for "
                               "--assistant-only-loss; --completion-only-loss is for records "
                               "with a prompt")
        self.kinds[kind] += 1
        if isinstance(what, Ids):
            return self._ids(what)
        if isinstance(what, Alpaca):
            what = Pair(*alpaca_text(what), what.origin)
        if isinstance(what, Pair):
            whole, first = what.prompt + what.completion, len(what.prompt)
        else:
            whole, first = what.text, 0
        spans = [(first, len(whole))] if self._completion_only else None
        return Sample(whole, what.origin, spans)

    def _ids(self, what):
        if self._completion_only:
            raise PrepareError(f"{what.origin}: input_ids have labels to say what is trained, "
                               "not --completion-only-loss")
        flags = None
        if what.labels is not None:
            flags = bytes(label != IGNORED_LABEL for label in what.labels)
        return Sample("", what.origin, ids=what.ids, flags=flags)

    def _chat(self, kind, chat):
        if not self._template:
            raise PrepareError(f"{chat.origin} is a conversation ({kind}), and the model has no "
                               "chat template: name one by --chat-template FILE or chatml")
        self.n_chats += 1
        self.n_long_chats += any(m.get("role") == "assistant" for m in chat.messages[:-1])
        renderer = self._renderers.get(bool(chat.tools)) or self._renderers[False]
        for message in chat.messages:
            if not renderer.template.takes_role(message["role"]):
                self._take_strange(chat, message["role"], renderer)
        self.kinds[f"{kind}, rendered by {renderer.template.name}"] += 1
        text, spans = renderer.render(chat)
        return Sample(text, chat.origin, spans, rendered=True)

    def _take_strange(self, chat, role, renderer):
        """A role that the template does not name: it may write any."""
        if (renderer, role) not in self._strange_taken:
            if not role or not renderer.writes_any_role(chat, role):
                raise PrepareError(f"{chat.origin}: the role {role!r} is unknown to the chat template "
                                   f"{renderer.template.name}; known everywhere are {', '.join(ROLES)} (from: human, "
                                   f"gpt, function_call, observation); tags in {NAME} can name others")
            self._strange_taken.add((renderer, role))
        self._n_strange += 1
        self._first_strange = self._first_strange or (role, chat.origin, renderer.template.name)

    def roles_note(self):
        """One line about roles that no template names; None where there were none."""
        if not self._n_strange:
            return None
        role, origin, name = self._first_strange
        return (f"warning: messages with a role that the chat template {name} writes as it is, like any other: "
                f"{self._n_strange}, first {origin}: {role!r}; the model may never have seen it")

    def dropped_note(self):
        """One line about what was dropped; None where nothing was."""
        if not self.n_dropped:
            return None
        (reason, n), = self.reasons.most_common(1)
        share = 100 * self.n_dropped
        line = (f"{self.n_dropped} of {self.n_samples} samples dropped; most often ({n}, first "
                f"{self._first[reason]}): {reason}")
        return "warning: " + line if share > DROPPED_PERCENT * self.n_samples else line
