"""penstock-prepare: ids, begin and end tokens, masks, damage; what it writes is
read back by the C reader.
"""

import hashlib
import json
import shutil
import unittest

from prepare_case import SHARED, TEXT, Case, Library, main, models, needs, pre_tokenizers
from penstock_prepare import PrepareError
from penstock_prepare.samples import Sample
from penstock_prepare.token_file import pack_bits
from penstock_prepare.tokenizer import Tokenizer


class Ids(Case):
    def golden(self, name, tokenizer):
        lines = (SHARED / "tokenizers/golden.jsonl").read_text().splitlines()
        rows = [row for row in map(json.loads, lines) if "ids" in row]
        self.assertGreater(len(rows), 30)
        samples = [Sample(row["text"], "golden") for row in rows]
        for row, got in zip(rows, tokenizer._tokenizer.encode_batch(
                [s.text for s in samples], add_special_tokens=False)):
            self.assertEqual(got.ids, row["ids"][name], repr(row["text"]))

    @needs("tokenizers/golden.jsonl")
    def test_tokenizer_json(self):
        for name in ("llama3style-2000-tokenizer.json", "tiny-bpe-qwen2-tokenizer.json"):
            with self.subTest(name):
                self.golden(name, Tokenizer(SHARED / "tokenizers" / name))

    @needs("tokenizers/golden.jsonl")
    def test_gpt2_vocabulary_and_merges(self):
        for name, ours in (("vocab.json", "gpt2-vocab.json"), ("merges.txt", "gpt2-merges.txt")):
            shutil.copyfile(SHARED / "tokenizers" / ours, self.folder / name)
        tokenizer = Tokenizer(self.folder)
        self.golden("gpt2", tokenizer)
        self.assertEqual(tokenizer.eos_id, 50256)
        both = b"".join((self.folder / n).read_bytes() for n in ("vocab.json", "merges.txt"))
        self.assertEqual(tokenizer.sha256, hashlib.sha256(both).digest())

    @needs("models/stories260K-hf")
    def test_published_model(self):
        model = SHARED / "models/stories260K-hf"
        tokenizer = Tokenizer(model)
        self.assertEqual((tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size), (1, 2, 512))
        (ids, _), = tokenizer.encode([Sample("Once upon a time", "")])
        expected = Library.from_file(str(model / "tokenizer.json")).encode("Once upon a time").ids
        self.assertEqual(ids, expected + [2])
        self.assertEqual(expected[0], 1)


class BeginAndEnd(Case):
    def ids(self, model, text, **more):
        (ids, _), = Tokenizer(model, **more).encode([Sample(text, "")])
        return ids

    def test_who_decides_about_the_begin_token(self):
        both = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
        for i, (config, post_bos, begins) in enumerate([
                (both, False, False), (both, True, True),
                (dict(both, add_bos_token=True), False, True),
                (dict(both, add_bos_token=True), True, True),
                (dict(both, add_bos_token=False), True, False)]):
            with self.subTest(config=config, post_bos=post_bos):
                ids = self.ids(self.model(f"m{i}", config, post_bos), "the fox")
                self.assertEqual(ids.count(0), begins)
                self.assertEqual(ids[0] == 0, begins)
                self.assertEqual((ids[-1], ids.count(1)), (1, 1))

    def test_never_two(self):
        """G7: the text brings its own begin and end tokens."""
        model = self.model(post_bos=True)
        self.assertEqual(self.ids(model, "<s>the fox</s>"), self.ids(model, "the fox"))

    def test_by_option_and_unknown(self):
        model = self.model(config={})
        self.assertEqual(self.ids(model, "the", bos="<s>", eos="<s>")[0], 0)
        with self.assertRaisesRegex(PrepareError, "<nope>"):
            self.ids(model, "the", bos="<nope>")

    def test_id_beyond_the_models_vocabulary(self):
        model = self.model()
        (model / "config.json").write_text('{"vocab_size": 5}')
        self.refused("has only 5 ids", "--tokenizer", model, "-o", self.folder / "x.pent",
                     self.write("a.txt", "the fox"))


class Files(Case):
    def test_text_is_read_back_by_c(self):
        model, out = self.model(post_bos=True), self.folder / "out.pent"
        a, b = self.write("a.txt", TEXT), self.write("b.txt", "\ufefffox € \r\n")
        done = self.tool("--tokenizer", model, "-o", out, a, b)
        self.assertIn("2 documents", done.stderr)
        head, borders, ids, flags = self.dump(out)
        library = Library.from_file(str(model / "tokenizer.json"))
        digest = hashlib.sha256((model / "tokenizer.json").read_bytes()).hexdigest()
        size = max(library.get_vocab().values()) + 1
        self.assertEqual(head, ["2", str(size), "0", "0", "1", "-1", digest])
        first = library.encode(TEXT).ids + [1]
        second = library.encode("fox € \r\n").ids + [1]
        self.assertEqual(ids, first + second)
        self.assertEqual(borders, [0, len(first), len(first) + len(second)])
        self.assertEqual(set(flags), {1})

    def test_same_input_same_bytes(self):
        model, text = self.model(), self.write("a.txt", TEXT)
        images = []
        for name in ("one.pent", "two.pent"):
            self.tool("--tokenizer", model, "-o", self.folder / name, text)
            images.append((self.folder / name).read_bytes())
        self.assertEqual(images[0], images[1])
        # a second run replaces the file
        self.tool("--tokenizer", model, "-o", self.folder / "one.pent", self.write("b.txt", "b"))
        self.assertNotEqual((self.folder / "one.pent").read_bytes(), images[0])

    def test_directory(self):
        model, out = self.model(), self.folder / "out.pent"
        for name, content in (("t/b.txt", "bb"), ("t/a/c.txt", "cc"), ("t/.x", "no"),
                              ("t/bin", b"n\0o"), ("t/latin", b"\xe4"), ("t/none", ""),
                              ("t/r.json", "{}")):
            self.write(name, content)
        done = self.tool("--tokenizer", model, "-o", out, self.folder / "t")
        self.assertIn("1 files that are not UTF-8 left out", done.stderr)
        tokenizer = Tokenizer(model)
        got = [tokenizer.decode(ids[:-1]) for ids, _ in self.documents(out)]
        self.assertEqual(got, ["cc", "bb", "{}"])

    def test_wide_tokens(self):
        """A vocabulary above 65,536 takes four bytes."""
        model = self.folder / "wide"
        model.mkdir()
        vocab = {f"w{i}": i for i in range(70000)}
        library = Library(models.WordLevel(vocab, unk_token="w0"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        library.save(str(model / "tokenizer.json"))
        out = self.folder / "out.pent"
        done = self.tool("--tokenizer", model, "-o", out, self.write("a.txt", "w1 w65536 w69999"))
        self.assertIn("no end token", done.stderr)
        head, _, ids, _ = self.dump(out)
        self.assertEqual((head[0], ids), ("4", [1, 65536, 69999]))


class Records(Case):
    def prepare(self, records, *options, name="r.jsonl"):
        model = self.folder / "model"
        if not model.exists():
            self.model(post_bos=True)
        out = self.folder / "out.pent"
        self.tool("--tokenizer", model, "-o", out, *options, self.records(records, name))
        self.assertEqual(self.dump(out)[0][2], "1")
        return Tokenizer(model), self.documents(out)

    def test_fields_are_joined(self):
        records = [{"text": "the fox"}, {"prompt": "the ", "completion": "dog"},
                   {"instruction": "jump", "input": "fox", "output": "over"},
                   {"instruction": "jump", "input": "", "output": "over"}]
        for name in ("r.jsonl", "r.json"):
            tokenizer, documents = self.prepare(records, name=name)
            got = [tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in documents]
            self.assertEqual(got, ["the fox", "the dog",
                                   "### Instruction:\njump\n\n### Input:\nfox\n\n"
                                   "### Response:\nover",
                                   "### Instruction:\njump\n\n### Response:\nover"])
            for ids, flags in documents:
                self.assertEqual((ids[0], ids[-1], set(flags)), (0, 1, {1}))

    def test_only_completions_are_targets(self):
        """By position: the prompt holds the same words and the same end token."""
        records = [{"prompt": "the dog</s>\n", "completion": "the dog"},
                   {"prompt": "the fox", "completion": ""}, {"text": "the fox"}]
        tokenizer, documents = self.prepare(records, "--completion-only-loss")
        trained = [[i for i, f in zip(ids, flags) if f] for ids, flags in documents]
        rest = [[i for i, f in zip(ids, flags) if not f] for ids, flags in documents]
        self.assertEqual(trained[0], tokenizer._tokenizer.encode(
            "the dog", add_special_tokens=False).ids + [1])
        self.assertEqual(tokenizer.decode(rest[0]), "<s>the dog</s>\n")
        self.assertEqual(trained[1], [1])
        self.assertEqual(rest[2], [0])

    @needs("instruct/instruction-data-1100.json")
    def test_instruction_set(self):
        model, out = self.model(), self.folder / "out.pent"
        data = SHARED / "instruct/instruction-data-1100.json"
        self.tool("--tokenizer", model, "-o", out, "--completion-only-loss", data)
        documents, tokenizer = self.documents(out), Tokenizer(model)
        records = json.loads(data.read_text())
        self.assertEqual(len(documents), 1100)
        for record, (ids, flags) in zip(records, documents):
            self.assertEqual(ids[-1], 1)
            first = flags.index(1)
            self.assertEqual(set(flags[first:]), {1})
            self.assertTrue(record["output"].endswith(tokenizer.decode(ids[first:-1])))
            self.assertTrue(tokenizer.decode(ids[:first]).rstrip().endswith("### Response:"))


class Refusals(Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.pent"

    def refuse(self, part, name, content, *options):
        if not (self.folder / "model").exists():
            self.model()
        self.refused(part, "--tokenizer", self.folder / "model", "-o", self.out, *options,
                     self.write(name, content))

    def test_bad_records(self):
        self.refuse("line 2 is not JSON", "a.jsonl", '{"text": "x"}\n{"text": \n')
        self.refuse("line 1 has the fields a, b", "a.jsonl", '{"b": "x", "a": 1}')
        self.refuse("chat template", "a.jsonl", '{"messages": []}')
        self.refuse('"text" is a number', "a.jsonl", '{"text": 3}')
        self.refuse("is a list, not an object", "a.jsonl", "[1]")
        self.refuse("not JSON at line 1", "a.json", '[{"text"]')
        self.refuse("no list of records", "a.json", '{"text": "x"}')
        self.refuse("not UTF-8 at byte 10", "a.jsonl", b'{"text": "\xe4"}')
        self.refuse("nothing to train on", "a.jsonl", "\n")

    def test_bad_text(self):
        self.refuse("not UTF-8 at byte 2", "a.txt", b"ab\xff")
        for nothing in (b"", b"\xef\xbb\xbf", b" \r\n\n"):  # else the end token alone is trained
            self.refuse("a.txt has no text", "a.txt", nothing)
        self.write("marks/a.txt", b"\xef\xbb\xbf")
        self.refused("no text file", "--tokenizer", self.folder / "model", "-o", self.out,
                     self.folder / "marks")
        self.refused("cannot read", "--tokenizer", self.folder / "model", "-o", self.out,
                     self.folder / "missing.txt")
        (self.folder / "void").mkdir()
        self.refused("no text file", "--tokenizer", self.folder / "model", "-o", self.out,
                     self.folder / "void")

    def test_bad_tokenizer(self):
        text = self.write("a.txt", "x")
        self.refused("no tokenizer at", "--tokenizer", self.folder / "no", "-o", self.out, text)
        self.refused("no tokenizer.json", "--tokenizer", self.folder, "-o", self.out, text)
        self.write("broken/tokenizer.json", "{")
        self.refused("cannot load", "--tokenizer", self.folder / "broken", "-o", self.out, text)
        self.write("pieces/tokenizer.model", "x")
        self.refused("save_pretrained", "--tokenizer", self.folder / "pieces", "-o", self.out, text)

    def test_output_that_cannot_be_written(self):
        self.out = self.folder / "no" / "out.pent"
        self.refuse("cannot write", "a.txt", "x")

    def test_wrong_usage(self):
        model, text = self.model(), self.write("a.txt", "x")
        for arguments in (["-o", self.out], ["-o", self.out, text, self.folder / "r.jsonl"],
                          [text], ["-o", self.out, text, "--completion-only-loss"],
                          ["--encode", text], ["--encode", "--decode"], ["--nonsense"]):
            self.refused("; see --help", "--tokenizer", model, *arguments, code=2)
        self.refused("--tokenizer", text, code=2)


class Words(Case):
    def test_encode_and_decode(self):
        model = self.model(post_bos=True)
        ids = self.tool("--tokenizer", model, "--encode", stdin=TEXT).stdout
        self.assertEqual(list(map(int, ids.split())),
                         Library.from_file(str(model / "tokenizer.json")).encode(TEXT).ids)
        text = self.tool("--tokenizer", model, "--decode", stdin=ids).stdout
        self.assertEqual(text, TEXT)
        self.assertIn("decimal", self.tool("--tokenizer", model, "--decode", stdin="1 x",
                                           code=1).stderr)

    def test_show(self):
        model = self.model()
        data = self.write("r.jsonl", '{"prompt": "the dog\\n", "completion": "the fox"}\n' * 3)
        done = self.tool("--tokenizer", model, "--show", 2, "--completion-only-loss", data)
        self.assertEqual(done.stdout.count("[[the dog\n]]the fox"), 2)
        self.assertEqual(done.stdout.count("--- sample"), 2)

    def test_bits(self):
        for n in range(20):
            flags = bytes((i * 7 + n) % 3 == 0 for i in range(n))
            bits = pack_bits(flags)
            self.assertEqual(len(bits), (n + 7) // 8)
            self.assertEqual([bits[i // 8] >> i % 8 & 1 for i in range(n)], list(flags))


if __name__ == "__main__":
    main()
