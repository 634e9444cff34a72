"""Conversations to text, with the places that are trained.

A place is a range of characters, found by where a turn stands and never by what
it says: from the template's generation tags where it has them; else by rendering
the conversation up to each turn, which must give a beginning of the whole.  Some
templates change a turn once another follows (they show a thought in the last one
only); then the user's turn behind it is rendered too, and the turn ends with the
last end token before that user's words.  Where that fails as well the conversation
is refused, and so is one whose trained words the template leaves out.

One disadvantage: without tags a conversation of n turns is rendered n times.
"""

import copy
import json
import os

from penstock_prepare.template import Refusal

PROBE_ROLE, PROBE_WORDS = "qprobeq", "zprobez"  # which nothing says by chance


class Renderer:
    def __init__(self, template, end_texts, assistant_only, completion_only):
        """`end_texts`: the texts of tokens that end a turn."""
        self.template = template
        self._end_texts = tuple(end_texts)
        self._assistant_only = assistant_only
        self._completion_only = completion_only

    def render(self, chat):
        """(text, trained ranges of it; None: all of it)."""
        parsed = _parse_arguments(chat.messages)
        try:
            return self._render(chat, parsed)
        except Refusal:
            if parsed == chat.messages:
                raise
        return self._render(chat, chat.messages)  # it may want them as text

    def writes_any_role(self, chat, role):
        """Does a role that no template has heard of, in this one's place, come out with what is said in it?"""
        for messages in (_parse_arguments(chat.messages), chat.messages):
            probe = [dict(m, role=PROBE_ROLE, content=PROBE_WORDS) if m["role"] == role else m for m in messages]
            try:
                text, _ = self.template.render(probe, chat.tools)
            except Refusal:
                continue
            if PROBE_ROLE in text and PROBE_WORDS in text:
                return True
        return False

    def _render(self, chat, messages):
        text, tags = self.template.render(messages, chat.tools)
        wanted = self._wanted(chat, messages)
        spans = None if wanted is None else self._spans(chat, messages, wanted, text, tags)
        if wanted is None:
            wanted = [message.get("role") == "assistant" for message in messages]
        said = text if spans is None else "".join(text[a:b] for a, b in spans)
        if self._leaves_out(chat, messages, wanted, text, said):
            raise Refusal(f"the chat template {self.template.name} leaves out what is to be trained")
        return text, spans

    def _leaves_out(self, chat, messages, wanted, text, said):
        """Is there nothing in the text of what the wanted messages say?"""
        spoken = [i for i, w in enumerate(wanted) if w and _words(messages[i])]
        if not spoken or any(_words(messages[i]) in said for i in spoken):
            return False
        for end in self._end_texts:
            said = said.replace(end, "")
        if not said.strip():
            return True
        # The template may change words; where others give the same text it drops them.
        others = [_other(m) if i in spoken else m for i, m in enumerate(messages)]
        try:
            return self.template.render(others, chat.tools)[0] == text
        except Refusal:
            return False

    def _wanted(self, chat, messages):
        """For each message whether it is trained; None: the whole text is."""
        by_message = any(said is not None for said in chat.train)
        if not (self._assistant_only or self._completion_only or by_message):
            return None
        wanted = [said if said is not None else message.get("role") == "assistant"
                  for said, message in zip(chat.train, messages)] \
            if self._assistant_only or by_message else [True] * len(messages)
        if self._completion_only:
            first = chat.n_prompt
            if first is None:
                ends = messages and messages[-1].get("role") == "assistant"
                first = len(messages) - 1 if ends else len(messages)
            wanted[:first] = [False] * first
        return wanted

    def _spans(self, chat, messages, wanted, text, tags):
        assistant = [message.get("role") == "assistant" for message in messages]
        others = any(w and not a for w, a in zip(wanted, assistant))
        if self.template.has_generation and not others:
            asked = [w for w, a in zip(wanted, assistant) if a]
            if all(asked):
                return tags
            if len(asked) == len(tags):
                return [span for span, w in zip(tags, asked) if w]
        return [self._turn(chat, messages, i, text) for i, w in enumerate(wanted) if w]

    def _turn(self, chat, messages, i, text):
        begin = 0
        if i:
            begin = len(self._beginning(chat, messages[:i], text))
            if messages[i].get("role") == "assistant":
                # What the model is given before it speaks is not its own.
                prompt, _ = self.template.render(messages[:i], chat.tools, True)
                begin = max(begin, len(os.path.commonprefix([prompt, text])))
        end = self._end(chat, messages, i, begin, text)
        body = text[begin:end].rstrip()
        # A line break behind the end token is the template's, never generated.
        return (begin, begin + len(body)) if body.endswith(self._end_texts) else (begin, end)

    def _end(self, chat, messages, i, begin, text):
        try:
            return len(self._beginning(chat, messages[:i + 1], text))
        except Refusal:
            after = messages[i + 1]
            words = after.get("content")
            if after.get("role") != "user" or not isinstance(words, str):
                raise
            whole = self._beginning(chat, messages[:i + 2], text)
            # What two different questions have in common ends before their words.
            other = dict(after, content="b" if words.lstrip().startswith("a") else "a")
            variant, _ = self.template.render(messages[:i + 1] + [other], chat.tools)
            border = len(os.path.commonprefix([whole, variant]))
            ends = [found + len(end) for end in self._end_texts
                    if (found := text.rfind(end, begin, border)) >= 0]
            if not ends:
                raise
            return max(ends)

    def _beginning(self, chat, messages, text):
        if len(messages) == len(chat.messages):
            return text
        part, _ = self.template.render(messages, chat.tools)
        if not text.startswith(part):
            raise Refusal("the template renders earlier turns otherwise once later ones follow, "
                          "so that turns cannot be told apart; a template with {% generation %} "
                          "tags can (--chat-template)")
        return part


def _content(message):
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _words(message):
    """What a message says, as text: its content, else its calls."""
    return _content(message).strip() or (json.dumps(message["tool_calls"]) if message.get("tool_calls") else "")


def _other(message):
    """The message with other words, or where it has none without its calls."""
    other = {key: value for key, value in message.items() if key != "tool_calls"}
    if _content(message).strip():
        other["content"] = message["content"] + "a"
    return other


def _parse_arguments(messages):
    """Arguments of tool calls as objects: OpenAI's records have them as JSON
    text, which most templates would quote a second time."""
    if not any(message.get("tool_calls") for message in messages):
        return messages
    messages = copy.deepcopy(messages)
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            call = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(call.get("arguments"), str):
                try:
                    call["arguments"] = json.loads(call["arguments"])
                except (ValueError, RecursionError):
                    pass
    return messages
