"""penstock-prepare: chat templates against golden renderings, what of a
conversation is trained, the formats of records, what is dropped and refused.
"""

import json
import os
import shutil
import unittest
from unittest import mock

from prepare_case import (SHARED, Case, Library, decoders, main, models, needs, pre_tokenizers,
                          processors, trainers)
from penstock_prepare import show
from penstock_prepare.chat import Renderer
from penstock_prepare.records import Chat
from penstock_prepare.samples import Sample
from penstock_prepare.template import OWN, Refusal, Template
from penstock_prepare.tokenizer import Tokenizer

GOLDEN_DAY = "1721952000"  # 26 Jul 2024
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
# ChatML that begins with the begin token, refuses a system's turn and has no tags.
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system here') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TALK = [{"role": "user", "content": "the fox"}, {"role": "assistant", "content": "the dog"},
        {"role": "user", "content": "jumps"}, {"role": "assistant", "content": "over the fox"}]


def golden(name):
    lines = (SHARED / "chat/golden.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "template" in row and row["template"].startswith(name)]


def template_of(row):
    source = (SHARED / "chat/templates" / row["template"]).read_bytes().decode("utf-8")
    return Template(source, row["template"],
                    {"bos_token": row["bos_token"], "eos_token": row["eos_token"]})


class Templates(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ, SOURCE_DATE_EPOCH=GOLDEN_DAY)
        patch.start()
        self.addCleanup(patch.stop)

    @needs("chat/golden.jsonl")
    def test_golden(self):
        rows = golden("")
        self.assertGreater(len(rows), 80)
        for row in rows:
            with self.subTest(row["template"], conversation=row["conversation"]):
                template = template_of(row)
                ask = (row["messages"], row.get("tools"), row["add_generation_prompt"])
                if "error" in row:
                    with self.assertRaises(Refusal) as caught:
                        template.render(*ask)
                    self.assertEqual(str(caught.exception), row["error"])
                    continue
                text, spans = template.render(*ask)
                self.assertEqual(text, row["text"])
                self.assertEqual(template.has_generation, "spans" in row)
                self.assertEqual([list(s) for s in spans], row.get("spans", []))

    @needs("chat/golden.jsonl")
    def test_prefixes_find_what_tags_say(self):
        """The same conversation by a template with tags and by its original."""
        compared = 0
        for row in golden("llama3_training") + golden("qwen2_5_training"):
            plain = dict(row, template=row["template"].replace("_training", ""))
            chat = Chat(row["messages"], "", row.get("tools"), [None] * len(row["messages"]))
            ends = ["<|eot_id|>", "<|im_end|>"]
            if row["add_generation_prompt"]:
                continue
            tagged = Renderer(template_of(row), ends, True, False).render(chat)
            found = Renderer(template_of(plain), ends, True, False).render(chat)
            self.assertEqual(found[0], tagged[0])
            # Qwen's tags take in the line breaks around a turn
            self.assertEqual([found[0][a:b].strip() for a, b in found[1]],
                             [found[0][a:b].strip() for a, b in tagged[1]])
            self.assertTrue(all(a <= c and d <= b for (a, b), (c, d) in zip(tagged[1], found[1])))
            compared += len(found[1])
        self.assertGreater(compared, 5)

    @needs("chat/golden.jsonl")
    def test_thought_in_the_last_turn_only(self):
        """Qwen 3 drops the empty thought of a turn once a question follows."""
        row, = [r for r in golden("qwen3.jinja") if r["conversation"] == "system_user_assistant_x2"
                and not r["add_generation_prompt"]]
        chat = Chat(row["messages"], "", None, [None] * len(row["messages"]))
        text, spans = Renderer(template_of(row), ["<|im_end|>", "<|endoftext|>"], True,
                               False).render(chat)
        self.assertEqual(text, row["text"])
        first, last = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
        self.assertEqual([text[a:b] for a, b in spans], [
            first + "<|im_end|>", "<think>\n\n</think>\n\n" + last + "<|im_end|>"])

    def test_broken_prefix_is_refused(self):
        """A template that shows a thought only in the last turn, without end tokens."""
        template = Template("{% for m in messages %}{{ m.role }}:{% if loop.last %}(hm){% endif %}"
                            "{{ m.content }};{% endfor %}", "t", {})
        with self.assertRaisesRegex(Refusal, "earlier turns"):
            Renderer(template, [], True, False).render(Chat(TALK, "", None, [None] * 4))

    def test_tags_inside_macros(self):
        template = Template("{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}."
                            "{% endmacro %}{% for m in messages %}>{{ say(m) }}{% endfor %}", "t", {})
        text, spans = template.render([{"content": "ab"}, {"content": "c"}])
        self.assertEqual((text, spans), (">ab.>c.", [(1, 3), (5, 6)]))

    def test_marks_in_the_text_are_refused(self):
        template = Template(OWN["chatml"], "chatml", {})
        with self.assertRaisesRegex(Refusal, "FDD0"):
            template.render([{"role": "user", "content": "a\ufdd1b"}])

    def test_sandbox(self):
        template = Template("{{ messages.__class__.__mro__ }}", "t", {})
        with self.assertRaisesRegex(Refusal, "unsafe"):
            template.render([])


class ChatCase(Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.pent"

    def chat_model(self, template=TEMPLATE, name="model"):
        """<s> 0, </s> 1, <|im_start|> 2, <|im_end|> 3; the post-processor adds <s>."""
        folder = self.folder / name
        folder.mkdir()
        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        library.train_from_iterator(["the quick fox jumps over the dog\n"], trainers.BpeTrainer(
            vocab_size=300, special_tokens=SPECIAL, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        library.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)])
        library.save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
        if template:
            config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    def prepare(self, records, *options, template=TEMPLATE, name="r.jsonl"):
        """(tokenizer, [(ids, flags)], what the tool said)."""
        model = self.folder / "model"
        if not model.exists():
            self.chat_model(template)
        done = self.tool("--tokenizer", model, "-o", self.out, *options,
                         self.records(records, name))
        return Tokenizer(model), self.documents(self.out), done.stderr

    def trained(self, *arguments, **more):
        """The trained pieces of each document, as text."""
        tokenizer, documents, _ = self.prepare(*arguments, **more)
        return [self.pieces(tokenizer, ids, flags) for ids, flags in documents]

    def forget_model(self):
        shutil.rmtree(self.folder / "model", ignore_errors=True)

    def pieces(self, tokenizer, ids, flags):
        pieces, run = [], []
        for number, flag in [*zip(ids, flags), (0, 0)]:
            if flag:
                run.append(number)
            elif run:
                pieces.append(tokenizer.decode(run))
                run = []
        return pieces


class Masks(ChatCase):
    ANSWERS = ["the dog<|im_end|>", "over the fox<|im_end|>"]

    def test_all_is_trained_unless_asked(self):
        _, ((_, flags),), said = self.prepare([{"messages": TALK}])
        self.assertEqual(set(flags), {1})
        self.assertIn("1 records by their keys: messages, rendered by", said)
        self.assertIn("the first, what is not trained in [[ ]]: <s><|im_start|>user\\nthe", said)

    def test_assistant_only(self):
        """G1: each turn's end token is trained, although the padding token is the same
        and the user's turns end with it too, untrained."""
        for template in (TEMPLATE, OWN["chatml"]):
            with self.subTest(template):
                self.forget_model()
                tokenizer, ((ids, flags),), _ = self.prepare(
                    [{"messages": TALK}], "--assistant-only-loss", template=template)
                self.assertEqual(self.pieces(tokenizer, ids, flags), self.ANSWERS)
                self.assertEqual([f for i, f in zip(ids, flags) if i == 3], [0, 1, 0, 1])

    def test_one_begin_token(self):
        """G7: whether the template writes one or leaves it to the tokenizer."""
        for template in (TEMPLATE, OWN["chatml"]):
            self.forget_model()
            _, ((ids, _),), _ = self.prepare([{"messages": TALK}], template=template)
            self.assertEqual((ids[0], ids.count(0)), (0, 1))

    def test_end_token_outside_the_tags(self):
        template = OWN["chatml"].replace("+ '<|im_end|>' }}{% endgen", "}}{% endgen").replace(
            "{% endgeneration %}", "{% endgeneration %}{{ '<|im_end|>' }}")
        self.assertNotEqual(template, OWN["chatml"])
        self.assertEqual(self.trained([{"messages": TALK}], "--assistant-only-loss",
                                      template=template), [self.ANSWERS])

    def test_template_without_end_token(self):
        template = ("{% for m in messages %}{{ m.role + ': ' + m.content }}"
                    "{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
                    "{% if add_generation_prompt %}{{ '\nassistant:' }}{% endif %}")
        tokenizer, ((ids, flags),), _ = self.prepare(
            [{"messages": TALK[:2]}], "--assistant-only-loss", template=template)
        self.assertEqual((ids[-1], ids.count(3)), (3, 1))
        self.assertEqual(self.pieces(tokenizer, ids, flags), [" the dog<|im_end|>"])

    def test_end_of_turn_that_is_no_token(self):
        """The end token behind the last turn is trained, behind a question it is not."""
        template = OWN["chatml"].replace("im_end", "no_token")
        tokenizer, documents, _ = self.prepare(
            [{"messages": TALK[:2]}, {"messages": TALK[:3]}], "--assistant-only-loss",
            template=template)
        got = [self.pieces(tokenizer, ids, flags)[-1] for ids, flags in documents]
        self.assertEqual(got, ["<|im_end|>", "the dog<|no_token|>"])
        self.assertEqual([ids.count(3) for ids, _ in documents], [1, 1])

    def test_chatml_without_its_end_token(self):
        """Turns end with the tokenizer's own end token, which is trained, and that is said."""
        model, talk = self.model(), self.records([{"messages": TALK}])
        done = self.tool("--tokenizer", model, "-o", self.out, "--chat-template", "chatml", "--assistant-only-loss",
                         "--save-template", self.folder / "t.jinja", talk)
        (ids, flags), = self.documents(self.out)
        self.assertEqual(self.pieces(Tokenizer(model), ids, flags), ["the dog</s>", "over the fox</s>"])
        self.assertEqual([f for i, f in zip(ids, flags) if i == 1], [0, 1, 0, 1])
        self.assertIn("warning: the chat template chatml ends turns with </s> here, since <|im_end|> is no token",
                      done.stderr)
        self.assertNotIn("im_end", (self.folder / "t.jinja").read_text())
        self.out.unlink()
        nothing = self.model("nothing", config={})
        words = json.loads((nothing / "tokenizer.json").read_text().replace('"</s>"', '"<x>"'))
        (nothing / "tokenizer.json").write_text(json.dumps(words))
        self.refused("which is no token of this tokenizer", "--tokenizer", nothing, "-o", self.out,
                     "--chat-template", "chatml", talk)

    def test_answers_that_do_not_end(self):
        """One warning that names the template and what stands where no end token does."""
        several = OWN["chatml"].replace("im_end", "no_token")
        one = several.replace("'<|no_token|>'", "'.'").replace("{{ '\n' }}{% endfor", "{% endfor")
        for template, talk, part in (
                (several, TALK, "ends an answer with '<|no_token|>"), (several, TALK[:2], "ends an answer with '<|no_token|>"),
                (one, TALK, "ends an answer with '.\\n<|im_start|>user"), (TEMPLATE, TALK, None), (OWN["chatml"], TALK, None),
                (TEMPLATE.replace("<|im_end|>", "|"), TALK[:2], "ends an answer with '|"), (TEMPLATE, TALK[:2], None),
                ("{% for m in messages %}{{ m.content }}{% endfor %}", TALK[:2], None),
                ("{% for m in messages %}{{ m.content }}{% endfor %}", TALK, "ends an answer with ''")):
            with self.subTest(template, turns=len(talk)):
                self.forget_model()
                said = self.prepare([{"messages": talk}], template=template)[2]
                warnings = [line for line in said.splitlines() if line.startswith("warning:")]
                self.assertEqual(len(warnings), part is not None, said)
                self.assertIn(part or "", "".join(warnings))
                self.assertIn("tokenizer_config.json" if part else "", "".join(warnings))

    def test_end_token_that_generation_does_not_know(self):
        model, talk = self.chat_model(), self.records([{"messages": TALK}])
        for ends, known in (({"eos_token_id": 1}, False), ({"eos_token_id": [1, 3]}, True), ({}, True)):
            (model / "generation_config.json").write_text(json.dumps(ends))
            said = self.tool("--tokenizer", model, "-o", self.out, talk).stderr
            self.assertEqual("ends an answer with <|im_end|>, which is no eos_token_id" in said, not known, said)

    def test_completion_only(self):
        records = [{"messages": TALK}, {"prompt": TALK[:1], "completion": TALK[1:2]},
                   {"prompt": "the fox", "completion": " jumps"},
                   {"instruction": "the", "input": "fox", "output": "dog",
                    "history": [["jumps", "over"]]}]
        expected = [self.ANSWERS[1:], self.ANSWERS[:1], [" jumps<|im_end|>"], ["dog<|im_end|>"]]
        self.assertEqual(self.trained(records, "--completion-only-loss"), expected)
        del records[2]
        del expected[2]
        self.assertEqual(self.trained(records, "--completion-only-loss", "--assistant-only-loss"),
                         expected)

    def test_messages_speak_for_themselves(self):
        def talk(*said):
            return {"messages": [dict(m, **s) for m, s in zip(TALK, said)]}
        records = [talk({}, {"weight": 0}, {}, {"weight": 1}), talk({}, {"train": False}, {}, {}),
                   talk({"train": True}, {}, {}, {"train": False})]
        user = "<|im_start|>user\nthe fox<|im_end|>"
        for template in (TEMPLATE, OWN["chatml"]):
            got = self.trained(records, "--assistant-only-loss", template=template)
            self.assertEqual(got[:2], [self.ANSWERS[1:]] * 2)
            # nothing comes before the first turn, so that its begin token is in it
            self.assertEqual(got[2][0].removeprefix("<s>"), user)
            self.assertEqual(got[2][1:], self.ANSWERS[:1])
            self.assertEqual(self.trained(records), got)
            self.forget_model()

    def test_blank_at_a_border(self):
        """A token that begins in the prompt is the prompt's."""
        tokenizer = Tokenizer(self.chat_model())
        (ids, flags), = tokenizer.encode([Sample("the fox", "", spans=[(4, 7)])])
        self.assertEqual(tokenizer.decode([i for i, f in zip(ids, flags) if not f]),
                         "<s>the fox")
        (ids, flags), = tokenizer.encode([Sample("the fox", "", spans=[(3, 7)])])
        self.assertEqual(self.pieces(tokenizer, ids, flags), [" fox<|im_end|>"])


class Formats(ChatCase):
    def text(self, records, *options, **more):
        tokenizer, documents, said = self.prepare(records, *options, **more)
        return [tokenizer.decode(ids) for ids, _ in documents], said

    def test_conversations_of_all_kinds(self):
        turns = [("human", "the fox"), ("gpt", "the dog")]
        records = [{"messages": TALK[:2]},
                   {"conversations": [{"from": a, "value": b} for a, b in turns]},
                   {"conversation": [{"role": m["role"], "content": m["content"]}
                                     for m in TALK[:2]], "system": None},
                   {"instruction": "the fox", "input": "", "output": "the dog", "text": "no"},
                   {"messages": [dict(TALK[0], content=[{"type": "text", "text": "the "},
                                                        {"type": "text", "text": "fox"}]),
                                 TALK[1]]}]
        texts, said = self.text(records)
        self.assertEqual(set(texts), {"<s><|im_start|>user\nthe fox<|im_end|>\n"
                                      "<|im_start|>assistant\nthe dog<|im_end|>\n"})
        for kind in ("2 records by their keys: messages", "1 records by their keys: conversations",
                     "1 records by their keys: instruction + output"):
            self.assertIn(kind, said)

    def test_system_and_tools(self):
        template = ("{% for t in tools or [] %}[{{ t.name }}]{% endfor %}{% for m in messages %}"
                    "{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}"
                    "{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}")
        call = {"type": "function", "function": {"name": "f", "arguments": '{"ä": 1}'}}
        records = [
            {"conversations": [{"from": "human", "value": "a"},
                               {"from": "function_call",
                                "value": '{"name": "f", "arguments": {"ä": 1}}'},
                               {"from": "observation", "value": "b"}],
             "system": "s", "tools": '[{"name": "f"}]'},
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
                          {"role": "assistant", "content": "", "tool_calls": [call]},
                          {"role": "tool", "content": "b"}], "tools": [{"name": "f"}]}]
        texts, _ = self.text(records, template=template)
        self.assertEqual(texts, ['<s>[f]system:s|user:a|assistant:{"ä": 1}|tool:b|<|im_end|>'] * 2)
        # a template that wants the arguments as text is given them so
        self.forget_model()
        texts, _ = self.text(records[1:], template=template.replace("| tojson", "+ '!'"))
        self.assertIn('{"ä": 1}!', texts[0])

    def test_template_by_name_and_file(self):
        records, model = [{"messages": TALK[:2]}], self.chat_model(template=None)
        self.refused("no chat template", "--tokenizer", model, "-o", self.out,
                     self.records(records))
        self.refused("nor", "--tokenizer", model, "-o", self.out, "--chat-template", "nor",
                     self.records(records))
        file = self.write("t.jinja", "{% for m in messages %}{{ m.content }}.{% endfor %}")
        saved = self.folder / "saved.jinja"
        self.assertEqual(self.text(records, "--chat-template", file, "--save-template", saved)[0],
                         ["<s>the fox.the dog.<|im_end|>"])
        self.assertEqual(saved.read_bytes(), file.read_bytes())
        self.assertIn("assistant\nthe dog", self.text(records, "--chat-template", "chatml")[0][0])
        (model / "chat_template.jinja").write_text("{{ messages[1].content }}")
        self.assertEqual(self.text(records)[0], ["<s>the dog<|im_end|>"])
        self.write("bad.jinja", "{% for %}")
        self.out.unlink()
        self.refused("not a chat template", "--tokenizer", model, "-o", self.out,
                     "--chat-template", self.folder / "bad.jinja", self.records(records))

    def test_template_for_tools(self):
        """A model's tool_use template renders conversations that have tools, and no others."""
        call = "{% for m in messages %}{{ 'T' + tools[0].name + m.content + eos_token }}{% endfor %}"
        plain = "{% for m in messages %}{{ 'P' + m.content + eos_token }}{% endfor %}"
        folder = self.model(config={"bos_token": "<s>", "eos_token": "</s>", "chat_template": [
            {"name": "default", "template": plain}, {"name": "tool_use", "template": call}]})
        records = [{"messages": TALK[:2]}, {"messages": TALK[:2], "tools": [{"name": "fox"}]}]
        out = self.folder / "tools.pent"
        done = self.tool("--tokenizer", folder, self.records(records), "-o", out, "--assistant-only-loss")
        library = Library.from_file(str(folder / "tokenizer.json"))
        first, second = (library.decode(ids) for ids, _ in self.documents(out))
        self.assertTrue(first.startswith("P") and second.startswith("Tfox"), (first, second))
        self.assertIn("(tool_use)", done.stderr)

    def test_template_in_a_file_of_its_own(self):
        folder = self.model(name="alone")
        (folder / "chat_template.json").write_text(json.dumps(
            {"chat_template": "{% for m in messages %}{{ 'J' + m.content }}{% endfor %}"}))
        out = self.folder / "alone.pent"
        done = self.tool("--tokenizer", folder, self.records([{"messages": TALK[:2]}]), "-o", out)
        self.assertIn("chat_template.json", done.stderr)

    def test_ids_and_labels(self):
        records = [{"input_ids": [5, 6, 7]}, {"input_ids": [5, 6, 7], "labels": [-100, -100, 7]}]
        _, documents, _ = self.prepare(records)
        self.assertEqual(documents, [([5, 6, 7], [1, 1, 1]), ([5, 6, 7], [0, 0, 1])])

    def test_directory_of_splits(self):
        model = self.chat_model()
        for name in ("train.jsonl", "valid.jsonl", "test.jsonl"):
            self.records([{"text": name[:2]}], f"sets/{name}")
        for options, text in (([], "tr"), (["--split", "valid"], "va")):
            self.tool("--tokenizer", model, "-o", self.out, *options, self.folder / "sets")
            (ids, _), = self.documents(self.out)
            self.assertEqual(Tokenizer(model).decode(ids), f"<s>{text}<|im_end|>")
        (self.folder / "sets/valid.jsonl").unlink()
        self.out.unlink()
        self.refused("none for validation", "--tokenizer", model, "-o", self.out, "--split",
                     "valid", self.folder / "sets")

    def test_parquet(self):
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            self.chat_model()
            self.refused("needs pyarrow", "--tokenizer", self.folder / "model", "-o", self.out,
                         self.write("a.parquet", b""))
            return
        path = self.folder / "a.parquet"
        rows = [{"text": None, "prompt": "the ", "completion": "fox"},
                {"text": "the dog", "prompt": None, "completion": None}]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        model = self.chat_model()
        self.tool("--tokenizer", model, "-o", self.out, path)
        got = [Tokenizer(model).decode(ids) for ids, _ in self.documents(self.out)]
        self.assertEqual(got, ["<s>the fox<|im_end|>", "<s>the dog<|im_end|>"])
        self.out.unlink()
        self.refused("not Parquet", "--tokenizer", model, "-o", self.out,
                     self.write("b.parquet", b"PAR1"))

    def test_dataset_info(self):
        info = {"one": {"file_name": "r.jsonl", "columns": {"prompt": "q", "response": "a"}},
                "two": {"file_name": "s.jsonl", "formatting": "sharegpt",
                        "columns": {"messages": "talk"},
                        "tags": {"role_tag": "who", "content_tag": "what", "user_tag": "U",
                                 "assistant_tag": "A"}},
                "three": {"file_name": "p.jsonl", "columns": {"prompt": "body"}},
                "four": {"file_name": "x.jsonl", "ranking": True}}
        self.write("dataset_info.json", json.dumps(info))
        wanted = ["<s><|im_start|>user\nthe fox<|im_end|>\n"
                  "<|im_start|>assistant\nthe dog<|im_end|>\n"]
        got, said = self.text([{"q": "the fox", "a": "the dog"}])
        self.assertEqual(got, wanted)
        self.assertIn("dataset_info.json says of one", said)
        got, _ = self.text([{"talk": [{"who": "U", "what": "the fox"},
                                      {"who": "A", "what": "the dog"}]}], name="s.jsonl")
        self.assertEqual(got, wanted)
        got, _ = self.text([{"body": "the fox"}], name="p.jsonl")
        self.assertEqual(got, ["<s>the fox<|im_end|>"])
        self.out.unlink()
        self.refused("preferences", "--tokenizer", self.folder / "model", "-o", self.out,
                     self.records([{"a": 1}], "x.jsonl"))

    @needs("instruct/sharegpt-dummy-500.json")
    def test_published_conversations(self):
        model = self.chat_model(template=None)
        data = SHARED / "instruct/sharegpt-dummy-500.json"
        self.tool("--tokenizer", model, "-o", self.out, "--chat-template", "chatml",
                  "--assistant-only-loss", data)
        tokenizer, documents = Tokenizer(model), self.documents(self.out)
        records = json.loads(data.read_text())
        self.assertEqual(len(documents), len(records))
        for record, (ids, flags) in zip(records, documents):
            answers = [t["value"] for t in record["conversations"] if t["from"] == "gpt"]
            self.assertEqual("".join(self.pieces(tokenizer, ids, flags)),
                             "".join(a + "<|im_end|>" for a in answers))


class Drops(ChatCase):
    SYSTEM = {"messages": [{"role": "system", "content": "s"}, *TALK]}

    def test_refused_by_the_template(self):
        good = [{"messages": TALK}]
        for n_good, word in ((19, ""), (18, "warning: ")):
            _, documents, said = self.prepare(good * n_good + [self.SYSTEM])
            self.assertEqual(len(documents), n_good)
            line = next(x for x in said.splitlines() if "dropped" in x)
            self.assertTrue(line.startswith(f"{word}1 of {n_good + 1} samples dropped"), line)
            self.assertIn("TemplateError: no system here", line)
            self.assertIn(f"line {2 * n_good + 1})", line)

    def test_nothing_trained(self):
        """G5: a conversation without an answer, and labels that are all masked."""
        records = [{"messages": TALK[:1]}, {"messages": TALK}]
        _, documents, said = self.prepare(records, "--assistant-only-loss")
        self.assertEqual(len(documents), 1)
        self.assertIn("warning: 1 of 2 samples dropped", said)
        self.assertIn("no token to train", said)
        self.out.unlink()
        for records, options, part in (
                ([records[0]], ["--assistant-only-loss"], "1 of 1 samples dropped"),
                ([self.SYSTEM], [], "no system here"),
                ([{"input_ids": [5, 6], "labels": [5, -100]}], [], "no token to train")):
            self.refused(part, "--tokenizer", self.folder / "model", "-o", self.out, *options,
                         self.records(records))

    def test_words_that_the_template_leaves_out(self):
        """No sample, though an end token or the template's own words could be trained."""
        silent = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'user' %}"
                  "{{ m.content }}{% endif %}NOTE<|im_end|>{{ '\n' }}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
        asks = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
        empty = OWN["chatml"].replace("{{ message.content + '<|im_end|>' }}{% endgen", "{% endgen")
        self.assertNotEqual(empty, OWN["chatml"])
        calls = {"messages": [TALK[0], {"role": "assistant", "content": "",
                                        "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]}
        for template in (silent, silent.replace("NOTE", ""), asks, empty):
            for options in ((), ("--assistant-only-loss",), ("--completion-only-loss",)):
                for record in ({"messages": TALK}, {"prompt": TALK[:1], "completion": TALK[1:2]}):
                    with self.subTest(template, options=options):
                        self.forget_model()
                        self.refused("1 of 1 samples dropped", "--tokenizer", self.chat_model(template), "-o", self.out,
                                     *options, self.records([record]))
        self.forget_model()
        self.refused("leaves out what is to be trained", "--tokenizer", self.chat_model(), "-o", self.out,
                     self.records([calls]))
        # words that the template changes are there, and an answer of no words is one
        upper = TEMPLATE.replace("m.content", "(m.content | upper)")
        for template, talk in ((upper, TALK), (TEMPLATE, [TALK[0], dict(TALK[1], content="")])):
            self.forget_model()
            _, documents, _ = self.prepare([{"messages": talk}], "--assistant-only-loss", template=template)
            self.assertEqual(len(documents), 1)
            self.out.unlink()

    def test_bad_records(self):
        model = self.chat_model()
        for record, part in (
                ({"prompt": "a", "chosen": "b", "rejected": "c"}, "chosen as the completion"),
                ({"messages": "a"}, "not a list of messages"),
                ({"messages": ["a"]}, "message 0 is text"),
                ({"messages": [{"content": "a"}]}, 'neither "role" nor "from"'),
                ({"messages": [dict(TALK[0], weight=0.5)]}, "train and weight are 0 or 1"),
                ({"messages": [dict(TALK[0], content=[{"image": "a"}])]}, "not text"),
                ({"messages": TALK, "tools": "[{"}, '"tools" is not JSON'),
                ({"instruction": "a", "output": "b", "history": ["c"]}, "pairs"),
                ({"input_ids": ["a"]}, "whole numbers"),
                ({"input_ids": [1, 2], "labels": [1]}, "2 input_ids and 1 labels"),
                ({"input_ids": [1, 2], "labels": [-100, 3]}, "label 1 is 3"),
                ({"input_ids": [1, -2]}, "gives id -2")):
            with self.subTest(part):
                self.refused(part, "--tokenizer", model, "-o", self.out, self.records([record]))

    def test_options_without_effect(self):
        model, text = self.chat_model(), self.records([{"text": "the fox"}])
        self.refused("no assistant's turns", "--tokenizer", model, "-o", self.out,
                     "--assistant-only-loss", text)
        self.refused("without effect", "--tokenizer", model, "-o", self.out,
                     "--chat-template", "chatml", text)
        self.refused("without effect", "--tokenizer", model, "-o", self.out,
                     "--save-template", self.folder / "t.jinja", text)
        self.assertFalse((self.folder / "t.jinja").exists())
        self.refused("text has no turns", "--tokenizer", model, "-o", self.out,
                     "--chat-template", "chatml", self.write("a.txt", "a"), code=2)


class Show(ChatCase):
    def test_plain_and_coloured(self):
        tokenizer = Tokenizer(self.chat_model())
        ids = [0, *tokenizer._tokenizer.encode("the fox", add_special_tokens=False).ids, 3]
        n = len(ids) - 2
        flags = bytes([0, *[0] * (n - 1), 1, 1])
        last = tokenizer.decode([ids[-2]])
        first = "the fox"[:-len(last)]
        self.assertEqual(show.plain(tokenizer, ids, flags), f"[[<s>{first}]]{last}<|im_end|>")
        self.assertEqual(
            show.coloured(tokenizer, ids, flags),
            f"{show.MASKED}{show.REVERSED}<s>{show.RESET}{show.MASKED}{first}{show.RESET}"
            f"{show.TRAINED}{last}{show.RESET}{show.TRAINED}{show.REVERSED}<|im_end|>{show.RESET}")

    def test_dropped_are_told(self):
        done = self.tool("--tokenizer", self.chat_model(), "--show", 1, self.records([{"text": " "}, {"text": "fox"}]))
        self.assertIn("warning: 1 of 2 samples dropped", done.stderr)

    def test_conversation(self):
        model = self.chat_model()
        done = self.tool("--tokenizer", model, "--show", 1, "--assistant-only-loss",
                         self.records([{"messages": TALK[:2]}] * 2))
        self.assertEqual(done.stdout.count("--- sample"), 1)
        self.assertIn("[[<s><|im_start|>user\nthe fox<|im_end|>\n<|im_start|>assistant\n]]"
                      "the dog<|im_end|>[[\n]]", done.stdout)


if __name__ == "__main__":
    main()
