"""What a record is, told by its keys.

    text                                    the text itself
    prompt, completion                      the one followed by the other; lists
                                            of messages make a conversation
    instruction, output                     Alpaca's, with input, system, history
    messages                                OpenAI's: role, content, tool_calls,
                                            and train or weight per message
    conversations                           ShareGPT's: from, value
    input_ids                               tokens as they are, with labels
    prompt, choices, answer                 a question for penstock eval: which of
                                            the choices, by number from 0

`chosen` and `rejected` are refused with a hint.

One disadvantage: each record is told apart on its own, so a key that is missing
from the 10,000th record is found when the 10,000th record is read.
"""

import json
from dataclasses import dataclass, field
from typing import Optional

from penstock_prepare import PrepareError

IGNORED_LABEL = -100
CHAT_KEYS = ["messages", "conversations", "conversation"]
KNOWN = ("text; prompt + completion; instruction (+ input, system, history) + output; "
         "messages; conversations; input_ids (+ labels)")

ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant",
         "model": "assistant", "function_call": "assistant", "observation": "tool",
         "function_response": "tool"}


@dataclass
class Text:
    text: str
    origin: str


@dataclass
class Pair:
    prompt: str
    completion: str
    origin: str


@dataclass
class Alpaca:
    """A conversation where there is a chat template, else text under headings."""
    system: str
    turns: list  # [(instruction, output)], the last one is the record's own
    origin: str


@dataclass
class Chat:
    messages: list
    origin: str
    tools: Optional[list] = None
    train: list = field(default_factory=list)  # per message True, False or None: not said
    n_prompt: Optional[int] = None  # messages that are the prompt, where that is said


@dataclass
class Question:
    """Multiple choice: which of the choices goes on from the prompt."""
    prompt: str
    choices: list
    answer: int
    origin: str


@dataclass
class Ids:
    ids: list
    labels: Optional[list]
    origin: str


def classify(record, origin):
    """(name of the format, what the record is)."""
    if not isinstance(record, dict):
        hint = " (a list of records is a .json file)" if isinstance(record, list) else ""
        raise PrepareError(f"{origin} is {type(record).__name__}, not an object with fields{hint}")
    # Tables have all columns in all rows; a column without a value is no key.
    record = {key: value for key, value in record.items() if value is not None}
    keys = record.keys()
    for key in CHAT_KEYS:
        if key in keys:
            return key, _chat(record, key, origin)
    if {"chosen", "rejected"} <= keys:
        raise PrepareError(f"{origin} is a preference pair (chosen, rejected), which is not "
                           "trained here; to fine-tune on the preferred answers make records "
                           "of prompt + completion with chosen as the completion")
    if "input_ids" in keys:
        return "input_ids", _ids(record, origin)
    if {"prompt", "choices"} <= keys:
        return "prompt + choices", _question(record, origin)
    if {"prompt", "completion"} <= keys:
        return "prompt + completion", _pair(record, origin)
    if {"instruction", "output"} <= keys:
        return "instruction + output", _alpaca(record, origin)
    if "text" in keys:
        return "text", Text(_text(record, "text", origin), origin)
    raise PrepareError(f"{origin} has the fields {', '.join(sorted(keys)) or '(none)'}; "
                       f"known are {KNOWN}; a dataset_info.json beside the file can name others")


def _text(record, key, origin):
    value = record.get(key, "")
    if not isinstance(value, str):
        raise PrepareError(f"{origin}: \"{key}\" is {type(value).__name__}, not text")
    return value


def _list(record, key, origin, what):
    value = record.get(key, [])
    if not isinstance(value, list):
        raise PrepareError(f"{origin}: \"{key}\" is {type(value).__name__}, not a list of {what}")
    return value


def _json_text(value, key, origin):
    """Some sets keep JSON as text within JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except json.JSONDecodeError as error:
        raise PrepareError(f"{origin}: \"{key}\" is not JSON: {error.msg} at column "
                           f"{error.colno}") from None
    except (RecursionError, ValueError) as error:
        raise PrepareError(f"{origin}: \"{key}\" cannot be read as JSON: {error}") from None


def _pair(record, origin):
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, list) and isinstance(completion, list):
        chat = _messages(prompt + completion, origin)
        chat.tools = _json_text(record.get("tools"), "tools", origin)
        chat.n_prompt = len(prompt)
        return chat
    return Pair(_text(record, "prompt", origin), _text(record, "completion", origin), origin)


def _question(record, origin):
    choices = _list(record, "choices", origin, "texts")
    if len(choices) < 2 or not all(isinstance(choice, str) for choice in choices):
        raise PrepareError(f"{origin}: \"choices\" are two texts or more")
    if not all(choice.strip() for choice in choices):
        raise PrepareError(f"{origin}: a choice has no text")
    answer = record.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        raise PrepareError(f"{origin}: \"answer\" is the number of a choice, 0 to "
                           f"{len(choices) - 1}, not {answer!r}")
    prompt = _text(record, "prompt", origin)
    if not prompt:
        raise PrepareError(f"{origin}: \"prompt\" is empty")
    return Question(prompt, choices, answer, origin)


def question_texts(question):
    """For each choice (what is given, all of it).  A blank joins the two, and
    belongs to the choice, as do blanks that end the prompt."""
    given = question.prompt.rstrip()
    blanks = question.prompt[len(given):]
    for choice in question.choices:
        between = blanks or ("" if choice[0].isspace() else " ")
        yield given, given + between + choice


def _alpaca(record, origin):
    turns = []
    for turn in _list(record, "history", origin, "pairs"):
        if not isinstance(turn, list) or len(turn) != 2 or \
                not all(isinstance(side, str) for side in turn):
            raise PrepareError(f"{origin}: \"history\" holds pairs of instruction and answer")
        turns.append(tuple(turn))
    request, given = (_text(record, key, origin) for key in ("instruction", "input"))
    turns.append(((request, given), _text(record, "output", origin)))
    return Alpaca(_text(record, "system", origin), turns, origin)


def alpaca_text(alpaca):
    """(prompt, completion) under the usual headings."""
    prompt = alpaca.system + "\n\n" if alpaca.system else ""
    for instruction, output in alpaca.turns[:-1]:
        prompt += f"### Instruction:\n{instruction}\n\n### Response:\n{output}\n\n"
    (request, given), output = alpaca.turns[-1]
    prompt += f"### Instruction:\n{request}"
    if given:
        prompt += f"\n\n### Input:\n{given}"
    return prompt + "\n\n### Response:\n", output


def alpaca_chat(alpaca):
    messages = [{"role": "system", "content": alpaca.system}] if alpaca.system else []
    for request, output in alpaca.turns:
        if isinstance(request, tuple):
            request = "\n".join(part for part in request if part)
        messages += [{"role": "user", "content": request},
                     {"role": "assistant", "content": output}]
    return Chat(messages, alpaca.origin, train=[None] * len(messages))


def _chat(record, key, origin):
    items = _list(record, key, origin, "messages")
    chat = _messages(items, origin)
    system = _text(record, "system", origin)
    if system and not (chat.messages and chat.messages[0]["role"] == "system"):
        chat.messages.insert(0, {"role": "system", "content": system})
        chat.train.insert(0, None)
    chat.tools = _json_text(record.get("tools"), "tools", origin) or None
    return chat


def _messages(items, origin):
    chat = Chat([], origin)
    for i, item in enumerate(items):
        where = f"{origin}, message {i}"
        if not isinstance(item, dict):
            raise PrepareError(f"{where} is {type(item).__name__}, not an object with fields")
        if "role" in item:
            message = dict(item)
        elif "from" in item:
            message = _sharegpt(item, where)
        else:
            raise PrepareError(f"{where} has neither \"role\" nor \"from\"")
        chat.train.append(_trained(message, where))
        if not isinstance(message["role"], str):
            raise PrepareError(f"{where}: \"role\" is {type(message['role']).__name__}, not text")
        if isinstance(message.get("content"), list):
            message["content"] = _parts(message["content"], where)
        chat.messages.append(message)
    return chat


def _sharegpt(item, where):
    role, value = item["from"], item.get("value")
    if not isinstance(role, str):
        raise PrepareError(f"{where}: \"from\" is {type(role).__name__}, not text")
    message = {key: item[key] for key in ("train", "weight") if key in item}
    message["role"] = ROLES.get(role, role)
    message["content"] = value
    if role == "function_call":
        calls = _json_text(value, "value", where)
        calls = calls if isinstance(calls, list) else [calls]
        if not all(isinstance(call, dict) for call in calls):
            raise PrepareError(f"{where}: a function call is an object with name and arguments")
        message["content"] = ""
        message["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    return message


def _trained(message, where):
    """What the message says of itself, taken out of it; None if it says nothing."""
    said = [message.pop(key) for key in ("train", "weight") if key in message]
    said = [value for value in said if value is not None]
    if any(value not in (0, 1) for value in said):
        raise PrepareError(f"{where}: train and weight are 0 or 1 (true, false); other "
                           "weights are not kept in a token file")
    return all(said) if said else None


def _parts(parts, where):
    """OpenAI's list of parts as one text."""
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise PrepareError(f"{where} has parts that are not text")
    return "".join(texts)


def _ids(record, origin):
    ids = _list(record, "input_ids", origin, "ids")
    labels = _list(record, "labels", origin, "labels") if "labels" in record else None
    for number in ids + (labels or []):
        if isinstance(number, bool) or not isinstance(number, int):
            raise PrepareError(f"{origin}: ids and labels are whole numbers, not {number!r}")
    if labels is None:
        return Ids(ids, None, origin)
    if len(labels) != len(ids):
        raise PrepareError(f"{origin} has {len(ids)} input_ids and {len(labels)} labels")
    for i, (number, label) in enumerate(zip(ids, labels)):
        if label not in (number, IGNORED_LABEL):
            raise PrepareError(f"{origin}: label {i} is {label}, its input id {number}; labels "
                               f"are the ids themselves, not shifted, or {IGNORED_LABEL}")
    return Ids(ids, labels, origin)
