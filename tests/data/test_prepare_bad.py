"""penstock-prepare with what people and machines get wrong: broken and odd
records, places that cannot be written, full disks, signals.  Each is one line and
an exit code, never a trace, and nothing half-written stays.
"""

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from prepare_case import ROOT, TEXT, main
from test_prepare_chat import TALK, ChatCase
from penstock_prepare import PrepareError, files
from penstock_prepare.dataset_info import mapping_for
from penstock_prepare.samples import Samples
from penstock_prepare.target import Target
from penstock_prepare.template import OWN, Template
from penstock_prepare.token_file import TokenFile
from penstock_prepare.tokenizer import Tokenizer

SEED = int(os.environ.get("PEN_SEED", random.randrange(1 << 32)))
NOBODY = 65534


class Json(ChatCase):
    def setUp(self):
        super().setUp()
        self.chat_model()

    def refuse(self, part, name, content, *options):
        self.refused(part, "--tokenizer", self.folder / "model", "-o", self.out, *options,
                     self.write(name, content))

    def test_broken_at_a_line(self):
        good = json.dumps({"text": "the fox"}) + "\n"
        for n in (0, 1, 1000):
            self.refuse(f"a.jsonl line {n + 1} is not JSON at column 10", "a.jsonl", good * n + '{"text": "the\n' + good)
        self.refuse("a.json is not JSON at line 3, column 1", "a.json", '[{"text": "a"},\n{"text": "b"},\n]')

    def test_nothing(self):
        for name in ("a.jsonl", "a.txt"):
            self.refuse(name, name, "")
        self.refuse("a.json is not JSON at line 1", "a.json", "")
        self.refuse("nothing to train on", "a.json", "[]")
        self.refuse("nothing to train on", "a.jsonl", "\n\n \n")

    def test_nested_too_deep(self):
        deep = "[" * 100000 + "]" * 100000
        self.refuse("a.jsonl line 1 is JSON nested too deep", "a.jsonl", '{"text": ' + deep + "}")
        self.refuse("a.json is JSON nested too deep", "a.json", deep)
        self.refuse('"tools" is JSON nested too deep', "b.jsonl", json.dumps({"messages": TALK, "tools": deep}))

    def test_what_it_is_instead(self):
        """A file of another kind is told as what it is."""
        for name, content, part in (
                ("a.jsonl.gz", b"\x1f\x8b\x08\xff", "is compressed: unpack it"), ("a.txt", "\ufeffä".encode("utf-16-le"), "-f utf-16"),
                ("b.txt", b"\xe4", "-f latin1"), ("c.txt", b"\x01\xff\0", "is no text"), ("d.gguf", b"GGUF\3\0\0\0", "is no text"), ("a.json", '{"text": "a"}\n{"text": "b"}\n', "rename it"),
                ("b.json", '{"text": "a"}\n{"text"', "rename it"), ("a.jsonl", '[{"text": "a"}]', "a list of records is a .json file"),
                ("b.jsonl", '{"question": "a"}', "dataset_info.json")):
            with self.subTest(name):
                self.refuse(part, name, content)
        done = self.tool("--tokenizer", self.chat_model(name="other"), "-o", self.out, self.write("a.csv", "a,b\n1,2\n"))
        self.assertIn("a.csv is taken as plain text", done.stderr)

    def test_numbers_without_end(self):
        self.refuse("a.jsonl line 1 cannot be read: it has a number of more than 4300 digits", "a.jsonl", '{"input_ids": [' + "9" * 5000 + "]}")
        self.refuse("gives id 9999", "a.jsonl", '{"input_ids": [5, ' + "9" * 4000 + "]}")

    def test_half_a_character(self):
        """JSON can hold it; no tokenizer takes it."""
        good = '{"text": "the fox"}\n'
        self.refuse("a.jsonl line 3: character 2 of the text is half of one (\\ud83d", "a.jsonl",
                    good + '\n{"text": "ab\\ud83d"}\n')
        self.refuse("half of one", "a.jsonl", '{"messages": [{"role": "user", "content": "\\udc00"}]}')
        self.refuse("half of one", "a.jsonl", '{"prompt": "a\\ud83d", "choices": ["a", "b"], "answer": 0}', "--choices",
                    self.folder / "c.json")
        _, documents, _ = self.prepare([{"text": "\U0001f600"}])  # written as a pair of them
        self.assertEqual(len(documents), 1)

    def test_a_line_without_end(self):
        with mock.patch.object(files, "LINE_BYTES", 100):
            self.refuse("a.jsonl line 2 is longer than 100 bytes", "a.jsonl", '{"text": "the fox"}\n{"text": "' + "a" * 100)
            self.tool("--tokenizer", self.folder / "model", "-o", self.out, self.write("b.jsonl", json.dumps({"text": "a" * 87})))

    def test_keys_that_stand_twice(self):
        self.refuse('a.jsonl line 2 has the key "text" twice', "a.jsonl", '{"text": "a"}\n{"text": "a", "text": "b"}\n')
        self.refuse('a.json has the key "role" twice', "a.json", '[{"messages": [{"role": "user", "role": "user"}]}]')

    def test_roles(self):
        """One that is unknown is no slip to pass over where the template leaves it out."""
        plain = self.write("plain.jinja", "{% for m in messages %}{% if m.role != 'user' %}A{% else %}U{% endif %}{{ m.content }}{% endfor %}")
        for record in ({"messages": [{"role": "wizard", "content": "a"}]},
                       {"conversations": [{"from": "human", "value": "a"}, {"from": "wizard", "value": "b"}]},
                       {"messages": [{"role": "", "content": "a"}]}):
            line = json.dumps({"messages": TALK}) + "\n" + json.dumps(record)
            self.refuse("a.jsonl line 2: the role '", "a.jsonl", line, "--chat-template", plain)
            self.refuse("system, developer, user, assistant, tool, function", "a.jsonl", line, "--chat-template", plain)
        self.refuse("the role ''", "a.jsonl", line, "--chat-template", "chatml")
        for words in ("m.role == 'wizard'", 'm["role"] in ["cat", "wizard"]', "{'cat': 1, 'wizard' : 2}[m.role]"):
            named = self.write("t.jinja", "{% for m in messages %}{% if " + words + " %}{{ m['content'] }}{% endif %}{% endfor %}")
            self.tool("--tokenizer", self.folder / "model", "-o", self.out, "--chat-template", named,
                      self.records([{"messages": [{"role": "wizard", "content": "the fox"}]}]))
            self.out.unlink()
            self.refuse("the role 'content'", "a.jsonl", '{"messages": [{"role": "content", "content": "a"}]}', "--chat-template", named)

    def test_roles_that_are_written_as_they_are(self):
        """The template may be made for them: one warning, however many."""
        told = [{"role": "context", "content": "the fox"}, TALK[0], {"role": "wizard", "content": "the dog"}, TALK[1]]
        done = self.tool("--tokenizer", self.folder / "model", "-o", self.out, "--chat-template", "chatml",
                         self.records([{"messages": TALK}, {"messages": told}, {"messages": told}]))
        warned = [line for line in done.stderr.splitlines() if "role" in line]
        self.assertEqual(len(warned), 1, done.stderr)
        self.assertIn("4, first ", warned[0])
        self.assertIn("r.jsonl line 3: 'context'", warned[0])
        self.out.unlink()
        deaf = self.write("deaf.jinja", "{% for m in messages %}{{ m.role }}{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% endif %}{% endfor %}")
        self.refuse("the role 'context'", "a.jsonl", json.dumps({"messages": told}), "--chat-template", deaf)

    def test_content(self):
        for value, what in ((5, "a number"), (True, "true or false"), ({}, "an object"), (None, "null")):
            self.refuse(f'a.jsonl line 1, message 0: "content" is {what}, not text', "a.jsonl",
                        json.dumps({"messages": [{"role": "user", "content": value}]}))
            self.refuse(f'message 0: "value" is {what}, not text', "a.jsonl",
                        json.dumps({"conversations": [{"from": "human", "value": value}]}))
        called = {"messages": [TALK[0], {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]}
        for options in ([], ["--chat-template", "chatml"]):
            self.refuse("cannot render a message without content", "a.jsonl", json.dumps(called), *options)
        called["messages"][1]["content"] = ""
        for depth in range(100, 1000, 50):  # less than a parser bears, more than what comes after
            self.refuse("1", "a.jsonl", json.dumps(called).replace('"f"', "[" * depth + "]" * depth))

    def test_a_line_of_megabytes(self):
        text = TEXT * 20000
        tokenizer, ((ids, _),), _ = self.prepare([{"text": text}])
        self.assertEqual(tokenizer.decode(ids, skip_special_tokens=True), text)

    def test_no_text(self):
        """A record of blanks teaches nothing but to end at once."""
        _, documents, said = self.prepare([{"text": "the fox"}, {"text": ""}, {"text": " \n"}])
        self.assertEqual(len(documents), 1)
        self.assertIn("2 of 3 samples dropped; most often (2, first", said)
        self.assertIn("no text", said)
        self.out.unlink()
        self.refuse("2 of 2 samples dropped", "a.jsonl", '{"text": ""}\n' * 2)
        self.refuse("no token to train", "a.jsonl", '{"input_ids": []}\n')
        self.refuse("no token to train", "a.jsonl", '{"input_ids": [5]}\n')

    def test_kinds_may_be_mixed(self):
        _, documents, said = self.prepare([{"text": "the fox"}, {"messages": TALK}, {"prompt": "the ", "completion": "dog"},
                                           {"input_ids": [5, 6]}])
        self.assertEqual(len(documents), 4)
        self.assertEqual(said.count("1 records by their keys"), 4)
        self.out.unlink()
        self.refused("records (.json, .jsonl, .parquet) and text cannot", "--tokenizer", self.folder / "model", "-o",
                     self.out, self.write("a.txt", "a"), self.folder / "r.jsonl", code=2)

    def test_wrong_types(self):
        for record, part in (
                ({"messages": [{"role": 5, "content": "a"}]}, '"role" is a number'),
                ({"conversations": [{"from": ["gpt"], "value": "a"}]}, '"from" is a list'),
                ({"conversations": [{"from": "function_call", "value": 5}]}, "a function call is an object"),
                ({"prompt": ["a"], "completion": "b"}, '"prompt" is a list'),
                ({"prompt": [TALK[0]], "completion": [5]}, "message 1 is a number"),
                ({"prompt": "a", "choices": ["a"], "answer": 0}, "two texts or more"),
                ({"prompt": "a", "choices": ["a", "b"], "answer": 2}, "0 to 1, not 2"),
                ({"prompt": "a", "choices": ["a", "b"], "answer": True}, "not True"),
                ({"instruction": "a", "output": ["b"]}, '"output" is a list'),
                ({"instruction": "a", "output": "b", "history": {"a": 1}}, '"history" is an object'),
                ({"text": {"a": "b"}}, '"text" is an object'), ({}, "(none)"), ({"text": None}, "(none)")):
            with self.subTest(part):
                self.refuse(part, "a.jsonl", json.dumps(record))

    def test_odd_calls_are_the_templates_business(self):
        record = {"messages": [TALK[0], dict(TALK[1], tool_calls=5), dict(TALK[1], tool_calls=[5, {"function": 6}])]}
        _, documents, _ = self.prepare([record])
        self.assertEqual(len(documents), 1)

    def test_columns_that_are_no_names(self):
        for entry in ({"columns": {"prompt": ["a"]}}, {"tags": {"role_tag": 5}, "formatting": "sharegpt"},
                      {"formatting": "other"}, {"columns": 5}):
            self.write("dataset_info.json", json.dumps({"x": {"file_name": "a.jsonl", **entry}}))
            self.refuse("dataset_info.json: x", "a.jsonl", '{"a": 1}')
        for text in ("{", "[" * 100000, "[]"):
            self.write("dataset_info.json", text)
            self.refuse("dataset_info.json", "a.jsonl", '{"a": 1}')
        self.write("dataset_info.json", '{"mine": 5}')
        self.refuse("dataset_info.json: mine is a number, not an object", "a.jsonl", '{"text": "a"}')
        self.write("dataset_info.json", json.dumps({"x": {"file_name": "a.jsonl", "formatting": "sharegpt"}}))
        self.refuse('"from" is a list', "a.jsonl", '{"conversations": [{"from": [1], "value": 2}]}')


class AnyRecord(ChatCase):
    """Whatever a record holds, it is a sample, or refused, or dropped: never a trace."""
    KEYS = ["text", "prompt", "completion", "instruction", "input", "output", "system", "history", "messages",
            "conversations", "conversation", "tools", "input_ids", "labels", "choices", "answer", "chosen", "rejected",
            "role", "content", "from", "value", "tool_calls", "function", "arguments", "train", "weight", "type", "other"]
    LEAVES = [None, True, False, 0, 1, -1, 0.5, 5, 1 << 70, float("nan"), "", " ", "the fox", "user", "assistant", "gpt",
              "human", "system", "tool", "function_call", "observation", "\ud83d", "[{", '{"a": 1}', "\ufdd0", "</s>"]
    USUAL = {"role": ["user", "assistant", "system"], "from": ["human", "gpt", "function_call", "observation"],
             "value": ["the fox", '{"a": 1}'], "input_ids": [[], [5], [5, 6, 7]], "labels": [[5, 6, 7], [-100, -100, 7]],
             "choices": [["a", "b"]], "answer": [0, 1, 2], "tools": [[], "[]", [{"name": "f"}]], "history": [[], [["a", "b"]]]}
    SETS = [["role", "content"], ["from", "value"], ["messages"], ["conversations"], ["input_ids"], ["input_ids", "labels"],
            ["prompt", "completion"], ["instruction", "output"], ["prompt", "choices", "answer"], ["text"], []]

    def value(self, draw, depth):
        kind = draw.random()
        if depth == 0 or kind < 0.4:
            return draw.choice(self.LEAVES)
        if kind < 0.7:
            return [self.value(draw, depth - 1) for _ in range(draw.randrange(4))]
        return self.record(draw, depth - 1)

    def usual(self, draw, key, depth):
        """Mostly what such a key holds, else anything."""
        if draw.random() < 0.1 or depth == 0:
            return self.value(draw, depth)
        if key in ("messages", "conversations", "conversation"):
            names = draw.choice(self.SETS[:2])
            return [{name: self.usual(draw, name, depth - 1) for name in names} for _ in range(draw.randrange(4))]
        return draw.choice(self.USUAL.get(key, ["the fox", "jumps"]))

    def record(self, draw, depth):
        more = draw.sample(self.KEYS, draw.choice([0, 0, 1, 3]))
        return {key: self.usual(draw, key, depth) for key in draw.choice(self.SETS) + more}

    def test_never_a_trace(self):
        print(f"PEN_SEED={SEED}", file=sys.stderr)
        draw = random.Random(SEED)
        tokenizer = Tokenizer(self.chat_model())
        info = {"a": {"file_name": "r.jsonl", "formatting": "sharegpt"}, "b": {"file_name": "s.jsonl"}}
        self.write("dataset_info.json", json.dumps(info))
        mappings = [None, mapping_for(self.folder / "r.jsonl")[0], mapping_for(self.folder / "s.jsonl")[0]]
        template = Template(OWN["chatml"], "chatml", {})
        counts = {"refused": 0, "dropped": 0, "encoded": 0}
        for _ in range(2000):
            mapping, record = draw.choice(mappings), self.record(draw, 4)
            samples = Samples([], draw.choice([template, None]), tokenizer.end_texts, draw.random() < 0.5,
                              draw.random() < 0.3)
            try:
                found = list(samples.of_record(mapping(record) if mapping else record, "here"))
                encoded = list(tokenizer.encode(found))
            except PrepareError as error:
                counts["refused"] += 1
                self.assertIn("here", str(error))
                continue
            counts["encoded"] += len(encoded)
            counts["dropped"] += samples.n_dropped
            for ids, flags in encoded:
                self.assertEqual(len(ids), len(flags))
        for kind, n in counts.items():
            self.assertGreater(n, 0, counts)


class Models(ChatCase):
    """What is wrong with the model's directory."""

    def refuse(self, part, model, *options):
        self.refused(part, "--tokenizer", model, "-o", self.out, *options, self.records([{"messages": TALK}]))

    def test_templates(self):
        model = self.chat_model()
        path = model / "tokenizer_config.json"
        config = json.loads(path.read_text())
        for bad in ([5], [{"name": "default"}], [{"name": 5, "template": "a"}]):
            path.write_text(json.dumps({**config, "chat_template": bad}))
            self.refuse("name and template", model)
        path.write_text(json.dumps({**config, "chat_template": "{% if %}"}))
        self.refuse("is not a chat template", model)
        path.write_text(json.dumps({**config, "chat_template": "{{ 1 / 0 }}"}))
        self.refuse("1 of 1 samples dropped; most often (1, first", model)
        path.write_text(json.dumps({**config, "chat_template": "{{ nothing.at.all }}"}))
        self.refuse("UndefinedError", model)
        path.write_text(json.dumps({**config, "chat_template": "{{ '(' * 9 }}" + "{% if 1 %}" * 3000}))
        self.refuse("chat template", model)
        self.refuse("cannot read the chat template", model, "--chat-template", self.write("t.jinja", b"\xff"))
        self.refuse("there is no chat template", model, "--chat-template", model)
        (model / "chat_template.jinja").write_bytes(b"\xff")
        self.refuse("chat_template.jinja is not UTF-8 at byte 0", model)

    def test_tokenizers(self):
        model = self.chat_model()
        for name in ("tokenizer_config.json", "config.json", "generation_config.json"):
            for text, why in (("{", "is not JSON at line 1, column 2"), ("[]", "is a list, not an object"),
                              ("5", "is a number, not"), ("[" * 100000, "is JSON nested too deep"), (b"\xff", "is not UTF-8 at byte 0"),
                              ("", "is not JSON at line 1: it is empty"), ('{"a": ' + "9" * 5000 + "}", "cannot be read: it has a number of more than 4300 digits"),
                              ('{"a": 1, "a": 2}', 'has the key "a" twice')):
                whole = (model / name).read_bytes() if (model / name).exists() else b"{}"
                self.write(f"model/{name}", text)
                self.refuse(f"{name} {why}", model)
                (model / name).write_bytes(whole)
        words = json.loads((model / "tokenizer.json").read_text())
        words["model"].update(vocab={}, merges=[])
        (model / "tokenizer.json").write_text(json.dumps({**words, "added_tokens": []}))
        self.refuse("has no tokens", model)
        (model / "tokenizer.json").write_bytes(b"")
        self.refuse("tokenizer.json: it is empty", model)

    def test_names_that_are_not_utf8(self):
        """Linux names are bytes; the library takes its file all the same, and what is said can be read."""
        model = self.chat_model()
        other = model.rename(os.fsdecode(os.fsencode(self.folder) + b"/bad\xff"))
        self.tool("--tokenizer", other, "-o", self.out, self.records([{"messages": TALK}]))
        self.out.unlink()
        (other / "tokenizer.json").write_bytes(b"{")
        self.refuse("bad\\xff/tokenizer.json", other)

    def test_without_packages(self):
        """What is missing is named, and how to install it."""
        model = self.chat_model()
        for package, asked in (("tokenizers", ["-o", self.out]), ("jinja2", ["-o", self.out]),
                               ("gguf", ["--gguf", "F16", "-o", self.folder / "x.gguf"])):
            hidden = self.write(f"hidden-{package}/{package}.py", f"raise ImportError('no module {package}')").parent
            data = [] if package == "gguf" else [self.records([{"messages": TALK}])]
            done = subprocess.run([sys.executable, "-m", "penstock_prepare", "--tokenizer", str(model),
                                   *map(str, asked + data)], capture_output=True, text=True,
                                  env=dict(os.environ, PYTHONPATH=f"{hidden}:{ROOT / 'prepare'}"))
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            self.assertIn("tools/setup", done.stderr)


class Places(ChatCase):
    def setUp(self):
        super().setUp()
        self.model_folder, self.text = self.chat_model(), self.write("a.txt", TEXT)

    def refuse(self, part, out, *data, code=1, options=()):
        self.refused(part, "--tokenizer", self.model_folder, "-o", out, *options, *(data or [self.text]), code=code)

    def test_what_is_there_is_not_replaced(self):
        """A slip of the hand costs no data: nothing but a token file is replaced."""
        self.write("b.txt", TEXT)
        for name in ("b.txt", "model/tokenizer.json"):
            whole = (self.folder / name).read_bytes()
            self.refuse("is no token file: it is not replaced", self.folder / name)
            self.assertEqual((self.folder / name).read_bytes(), whole)
        self.refuse("is no file", self.model_folder)
        device = self.folder / "device"
        os.mkfifo(device)
        self.refuse("is no file", device)
        self.refuse("/dev/zero is a device", self.out, "/dev/zero")
        (self.folder / "r.jsonl").symlink_to("/dev/zero")
        self.refuse("is a device", self.out, self.folder / "r.jsonl")
        self.write("empty", "")  # as mktemp makes it
        self.tool("--tokenizer", self.model_folder, "-o", self.folder / "empty", self.text)
        self.tool("--tokenizer", self.model_folder, "-o", self.folder / "empty", self.text)

    def test_companions_are_not_written_over_anything(self):
        """A template and what scores choices: their own again, other files with --overwrite alone."""
        talk = self.records([{"messages": TALK}])
        question = self.write("q.jsonl", json.dumps({"prompt": "a", "choices": ["b", "c"], "answer": 0}))
        for option, data in (("--save-template", talk), ("--choices", question)):
            mine = self.write("mine.txt", "mine")
            with self.subTest(option):
                self.refuse(f"{option}: {mine} is there", self.out, data, options=[option, mine])
                self.assertEqual(mine.read_text(), "mine")
                self.refuse("is no file", self.out, data, options=[option, self.model_folder])
                for again in (["--overwrite"], []):  # what it wrote it writes again
                    self.tool("--tokenizer", self.model_folder, "-o", self.out, option, mine, *again, data)
                self.assertNotEqual(mine.read_text(), "mine")
                self.out.unlink()
                self.refuse("is the data", self.out, data, options=[option, data, "--overwrite"])
                self.refuse("name the same file", self.out, data, options=[option, self.out])
                self.refuse("needs --output", self.out, data, code=2, options=["-o", "", option, mine, "--show", "1"])
                mine.unlink()
                self.refuse("is no token file", self.text, data, options=[option, mine])
                self.assertFalse(mine.exists())
        self.refuse("is the data", self.text, self.text, options=["--overwrite"])
        self.tool("--tokenizer", self.model_folder, "-o", self.write("b.txt", "b"), "--overwrite", self.text)
        self.assertEqual((self.folder / "b.txt").read_bytes()[:8], b"PENTOKEN")

    def test_folders(self):
        self.refuse("cannot write", self.folder / "no" / "x")
        self.refuse("cannot write", self.text / "x")
        self.refuse("saved.jinja", self.out, self.records([{"messages": TALK}]),
                    options=["--save-template", self.folder / "no" / "saved.jinja"])
        question = self.write("q.jsonl", json.dumps({"prompt": "a", "choices": ["b", "c"], "answer": 0}))
        self.refuse("c.json", self.out, question, options=["--choices", self.folder / "no" / "c.json"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can become nobody")
    def test_rights(self):
        closed = self.folder / "closed"
        closed.mkdir(mode=0o700)
        self.write("closed/a.txt", "a")
        self.write("half/inner/a.txt", "a")
        self.write("half/b.txt", "b")
        (self.folder / "half/inner").chmod(0o700)
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        self.folder.chmod(0o755)
        for data, out, part in ((closed / "a.txt", self.folder / "open/o", "a.txt"), (closed, self.folder / "open/o", "closed"),
                                (self.folder / "half", self.folder / "open/o", "inner"),
                                (self.text, self.folder / "o", "cannot write")):
            os.seteuid(NOBODY)
            try:
                said = self.tool("--tokenizer", self.model_folder, "-o", out, data, code=1).stderr
            finally:
                os.seteuid(0)
            self.assertEqual(len(said.splitlines()), 1, said)
            self.assertIn(part, said)
            self.assertIn("Permission denied", said)

    def test_full_disk(self):
        """Room for the first bytes only, at several sizes; nothing stays."""
        data = self.records([{"messages": TALK}] * 3000)
        whole = self.folder / "whole.pent"
        self.tool("--tokenizer", self.model_folder, "-o", whole, data)
        size = whole.stat().st_size
        whole.unlink()
        for limit in (0, 300, size // 2, size - 1):
            def less(limit=limit):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            done = subprocess.run([sys.executable, "-m", "penstock_prepare", "--tokenizer", str(self.model_folder), "-o",
                                   str(self.out), str(data)], capture_output=True, text=True, preexec_fn=less,
                                  env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare"), PYTHONDONTWRITEBYTECODE="1"))
            self.assertEqual(done.returncode, 1, done.stderr)
            line, = done.stderr.splitlines()
            self.assertRegex(line, r"cannot write .*out.pent after \d+ tokens: File too large")
            self.assertEqual([p for p in self.folder.iterdir() if "out.pent" in p.name], [])

    def leftovers(self):
        return [p.name for p in self.folder.iterdir() if "out.pent" in p.name]

    def signalled(self, number, code, said):
        """The tool in the middle of much to do, and then the signal."""
        slow = self.write("slow.jinja", "{% for i in range(99999) %}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}")
        talk = self.records([{"messages": TALK}] * 20000)
        with subprocess.Popen([sys.executable, "-m", "penstock_prepare", "--tokenizer", str(self.model_folder), "-o",
                               str(self.out), "--chat-template", slow, str(talk)], stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare"))) as tool:
            while not self.leftovers() and tool.poll() is None:
                time.sleep(0.01)
            time.sleep(0.1)
            tool.send_signal(number)
            self.assertEqual(tool.stderr.read(), said)
        self.assertEqual(tool.returncode, code)

    def test_stopped(self):
        """Ctrl-C, and a polite kill: one line, nothing half-written."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self.signalled(number, 1, "penstock-prepare: stopped\n")
            self.assertEqual(self.leftovers(), [])

    def test_stopped_while_it_is_loaded(self):
        """By a module in the place of Python's own, which sends the signal."""
        self.write("argparse.py", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        done = subprocess.run([sys.executable, "-m", "penstock_prepare", "--help"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, PYTHONPATH=f"{self.folder}:{ROOT / 'prepare'}"), timeout=60)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""))

    def test_stopped_in_a_long_call(self):
        """The tokenizer's library, at a text that takes it for ever, sees no signal."""
        begun = self.folder / "begun"
        stuck = self.write("stuck.py", f"""
import ctypes, pathlib, threading
from penstock_prepare import cli, tokenizer

class Library:
    def __init__(self, library):
        self._library = library

    def __getattr__(self, name):
        return getattr(self._library, name)

    def encode_batch(self, texts, add_special_tokens):
        pathlib.Path({str(begun)!r}).touch()
        worker = threading.Thread(target=self._wait, daemon=False)  # which Python would wait for as it ends
        worker.start()
        worker.join()

    def _wait(self):
        mutex = ctypes.create_string_buffer(64)  # zeros: unlocked
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)

load = tokenizer.Tokenizer._load
tokenizer.Tokenizer._load = lambda self, path: (lambda library, sha: (Library(library), sha))(*load(self, path))
raise SystemExit(cli.main())
""")
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([sys.executable, stuck, "--tokenizer", str(self.model_folder), "-o", str(self.out),
                                   str(self.text)], stderr=subprocess.PIPE, text=True,
                                  env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare"))) as tool:
                while not begun.exists() and tool.poll() is None:
                    time.sleep(0.01)
                tool.send_signal(number)
                try:
                    said = tool.communicate(timeout=100)[1]
                finally:
                    tool.kill()
            self.assertEqual((tool.returncode, said), (1, "penstock-prepare: stopped\n"))
            self.assertEqual(self.leftovers(), [])
            begun.unlink()

    def test_killed(self):
        """What a kill leaves behind the next one removes, and nothing else."""
        self.signalled(signal.SIGKILL, -signal.SIGKILL, "")
        left, = self.leftovers()
        alive = self.write(f".out.pent.{os.getppid()}.tmp", "")
        elsewhere = self.write(".out.pent.4294967295.tmp", "")  # held by one that is not seen here
        others = [self.write(name, "") for name in (".ut.pent.4294967294.tmp", ".out.pent.x.tmp", ".out.pent.4294967294.tmpx")]
        with open(elsewhere, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.tool("--tokenizer", self.model_folder, "-o", self.out, self.text)
        self.assertFalse((self.folder / left).exists())
        for path in [alive, elsewhere, *others, self.out]:
            self.assertTrue(path.exists(), path)
        self.tool("--tokenizer", self.model_folder, "-o", self.out, self.text)
        self.assertFalse(elsewhere.exists())

    def test_it_is_held_while_it_is_written(self):
        target = Target(self.out, b"x", "x")
        with target:
            target.hold()
            with open(target.temporary, "rb") as file, self.assertRaises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_token_file_is_held_while_it_is_written(self):
        tokenizer = Tokenizer(self.model_folder, None, None)
        with TokenFile(self.out, tokenizer, records=False):
            left, = self.leftovers()
            with open(self.folder / left, "rb") as file, self.assertRaises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_names_with_line_breaks(self):
        """Every message is a line, whatever a path holds."""
        odd = self.folder / "a\nb\x1b[31m"
        odd.mkdir()
        self.refuse(r"a\nb\x1b[31m/no.txt", self.out, odd / "no.txt")
        talk = self.write("a\nb\x1b[31m/r.jsonl", json.dumps({"messages": TALK}) + '\n{"text": ""}\n')
        said = self.tool("--tokenizer", self.model_folder, "-o", odd / "out", talk).stderr
        self.assertEqual(said.count(r"a\nb\x1b[31m"), 2, said)
        self.assertNotIn("\x1b", said)
        self.assertEqual(len(said.splitlines()), 4, said)
        self.refuse(r"a\nb", self.out, self.text, options=["--show", "a\nb"], code=2)

    def test_usage(self):
        out, model = ["-o", self.out], ["--tokenizer", self.model_folder]
        for arguments in ([*out, "--show", "-1", self.text], [*out, "--show", "9" * 20, self.text], [*out, "--show", "9" * 5000, self.text],
                          [*out, "--show", "x", self.text],
                          [*out, "--split", "test", self.text], ["--gguf", "Q4", *out], ["--gguf", "F16", *out, self.text],
                          ["--serve", self.text], ["--serve", "--encode"], ["--encode", "--chat-template", "chatml"],
                          [*out, self.text, "--assistant-only-loss"], [self.text, "--show", "1", "--save-template", "x"]):
            said = self.tool(*model, *arguments, code=2).stderr
            self.assertRegex(said, r"\Apenstock-prepare: .*; see --help\n\Z")
        self.refused("no token '<nope>'", *model, *out, "--eos", "<nope>", self.text)
        for stdin, part in (("-1", "0 to 4294967295"), ("4294967296", "0 to 4294967295"), ("1.5", "decimal"), ("9" * 5000, "decimal")):
            self.assertIn(part, self.tool(*model, "--decode", stdin=stdin, code=1).stderr)
        self.assertEqual(self.tool(*model, "--decode", stdin="4294967295").stdout, "")


if __name__ == "__main__":
    main()
