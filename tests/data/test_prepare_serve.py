"""The tool as a partner: requests and answers line by line, and text of an answer
in whole characters however its bytes come.
"""

import json
import os
import subprocess
import sys

from prepare_case import ROOT, Case, Library, main

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}" \
           "{% if add_generation_prompt %}assistant:{% endif %}"


class Serve(Case):
    def talk(self, model, requests, *options):
        """Answers to all of them; the first line says that it is ready."""
        asked = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
        done = subprocess.run([sys.executable, "-m", "penstock_prepare", "--tokenizer", str(model), "--serve",
                               *options], input=asked, capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare")))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_text_in_whole_characters(self):
        """Every character of several bytes comes at once, and all of the text comes."""
        model = self.model()
        text = "the fox ñßλж \U0001f600 the dog"
        ids = Library.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
        self.assertGreater(len(ids), 15)  # bytes, most of them
        answers = self.talk(model, [{"begin": []}] + [{"add": [i]} for i in ids] + [{"end": True}])
        pieces = [answer["text"] for answer in answers[2:]]
        self.assertEqual("".join(pieces), text)
        self.assertNotIn("\ufffd", "".join(pieces))
        self.assertEqual(pieces[-1], "")
        self.assertGreater(sum(1 for piece in pieces if piece), 10)

    def test_what_is_broken_is_told_at_the_end(self):
        model = self.model()
        vocab = Library.from_file(str(model / "tokenizer.json")).get_vocab()
        first = vocab["\u00c3"]  # the byte C3 alone
        answers = self.talk(model, [{"begin": []}, {"add": [first]}, {"end": True}])
        self.assertEqual([a["text"] for a in answers[2:]], ["", "\ufffd"])

    def test_blank_after_a_prompt(self):
        """What an answer begins with depends on what it follows."""
        model = self.model()
        library = Library.from_file(str(model / "tokenizer.json"))
        prompt, more = (library.encode(t, add_special_tokens=False).ids for t in ("the quick", " brown"))
        answers = self.talk(model, [{"begin": prompt}, {"add": more}])
        self.assertEqual(answers[2]["text"], " brown")

    def test_conversations(self):
        """One begin token (G7), and the model speaks next."""
        model = self.model(post_bos=True)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        library = Library.from_file(str(model / "tokenizer.json"))
        talk = [{"role": "user", "content": "the fox"}]
        ready, answer = self.talk(model, [{"chat": talk}])
        self.assertEqual(ready, {})
        self.assertEqual(answer["ids"].count(0), 1)
        self.assertEqual(library.decode(answer["ids"], skip_special_tokens=False),
                         "<s>user: the fox</s>assistant:")

    def test_errors_are_answers(self):
        model = self.model()
        (model / "chat_template.jinja").write_text("{{ raise_exception('no users here') }}")
        ready, chat, after = self.talk(model, [{"chat": []}, {"encode": "the"}])
        self.assertIn("no users here", chat["error"])
        self.assertIn("ids", after)
        odd = os.fsdecode(os.fsencode(self.folder) + b"/bad\xff\n")
        self.assertIn("no tokenizer at", self.talk(odd, [])[0]["error"])
        self.assertIn(r"bad\xff\n", self.talk(odd, [])[0]["error"])  # a surrogate is no valid JSON to others
        self.assertIn("no tokenizer", self.talk(self.folder / "nothing", [])[0]["error"])
        self.assertIn("no chat template", self.talk(self.model("plain"), [{"chat": []}])[1]["error"])
        done = subprocess.run([sys.executable, "-m", "penstock_prepare", "--tokenizer", str(model), "--serve"],
                              input=b'{"encode": "the \xff"}\n', capture_output=True, check=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare")))
        self.assertIn("not UTF-8 (byte 0xff)", json.loads(done.stdout.splitlines()[1])["error"])
        for request in ("not json", "[]", "5", "{}", '{"encode": 5}', '{"chat": "a"}', '{"add": ["a"]}', '{"add": [-1]}',
                        '{"add": [99999999999]}', '{"other": 1}', '{"chat": [5]}', "[" * 100000, '{"encode": "\\ud83d"}'):
            answers = self.talk(model, [request, {"encode": "the"}])
            self.assertIn("error", answers[1], request[:40])
            self.assertIn("ids", answers[2], request[:40])


if __name__ == "__main__":
    main()
