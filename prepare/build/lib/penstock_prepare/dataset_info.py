"""LLaMA-Factory's dataset_info.json: which columns of a file mean what.

A dataset_info.json beside a data file speaks for it where one of its entries
names the file; each record is then given the keys that records.py knows.

One disadvantage: entries that fetch from a hub, or name a script, are of no use
here and are passed over.
"""

import json

from penstock_prepare import PrepareError

NAME = "dataset_info.json"
ALPACA = {"prompt": "instruction", "query": "input", "response": "output",
          "history": "history", "system": "system", "tools": "tools"}
TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human",
        "assistant_tag": "gpt", "observation_tag": "observation",
        "function_tag": "function_call", "system_tag": "system"}


def mapping_for(path):
    """A function from record to record, and the entry's name; (None, None) if
    nothing is said of `path`."""
    info = path.parent / NAME
    try:
        entries = json.loads(info.read_text("utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError) as error:
        raise PrepareError(f"cannot read {info}: {error}") from None
    if not isinstance(entries, dict):
        raise PrepareError(f"{info} is not an object of data sets")
    for name, entry in entries.items():
        if isinstance(entry, dict) and entry.get("file_name") == path.name:
            return _mapping(entry, f"{info}: {name}"), name
    return None, None


def _mapping(entry, origin):
    formatting = entry.get("formatting", "alpaca")
    columns, tags = entry.get("columns", {}), entry.get("tags", {})
    for said in (columns, tags):
        if not isinstance(said, dict) or not all(isinstance(name, str) for name in said.values()):
            raise PrepareError(f"{origin}: columns and tags are objects of names")
    if entry.get("ranking"):
        raise PrepareError(f"{origin} is a set of preferences (ranking), which is not trained here")
    if formatting == "alpaca":
        return lambda record: _alpaca(record, columns)
    if formatting == "sharegpt":
        return lambda record: _sharegpt(record, columns, {**TAGS, **tags})
    raise PrepareError(f"{origin} has the formatting {formatting!r}; known are alpaca, sharegpt")


def _alpaca(record, columns):
    if not isinstance(record, dict):
        return record
    mapped = {name: record[columns.get(key, name)] for key, name in ALPACA.items()
              if columns.get(key, name) in record}
    if "response" not in columns and "prompt" in columns and "output" not in mapped:
        return {"text": mapped.get("instruction")}  # a set for pretraining
    return mapped


def _sharegpt(record, columns, tags):
    if not isinstance(record, dict):
        return record
    words = {tags["user_tag"]: "user", tags["assistant_tag"]: "assistant",
             tags["observation_tag"]: "tool", tags["function_tag"]: "function_call",
             tags["system_tag"]: "system"}
    messages = record.get(columns.get("messages", "conversations"))
    if not isinstance(messages, list):
        return record

    def message(item):
        if not isinstance(item, dict) or tags["role_tag"] not in item:
            return item
        role = item[tags["role_tag"]]
        return {"from": words.get(role, role) if isinstance(role, str) else role, "value": item.get(tags["content_tag"])}

    mapped = {"conversations": [message(item) for item in messages]}
    for key in ("system", "tools"):
        if columns.get(key, key) in record:
            mapped[key] = record[columns.get(key, key)]
    return mapped
