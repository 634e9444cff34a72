#!/usr/bin/env python3
"""Both JSON parsers take, refuse and keep the same.

    test_json_both.py DUMP_JANSSON DUMP_PLAIN

Documents: hand-made ones at every edge of the grammar, the project's own, and
mutations of all of them (PEN_SEED).  What makes it red: a rule of the grammar
that only one of the parsers knows.
"""
import glob
import os
import random
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUTATIONS = 20000

EDGES = [b"", b" ", b"null", b"nulll", b"nul", b"true", b"false1", b"True", b"-", b"-0", b"0", b"00", b"01", b"-01", b"1.", b".5",
         b"1.5", b"-1.5e3", b"1e", b"1e+", b"1e+05", b"1E400", b"-1E400", b"1e-400", b"4.9e-324", b"0.1", b"1.0",
         b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
         b"123456789012345678901234567890.0", b"+1", b"1 2", b"[1,]", b"[,1]", b"[]", b"[ ]", b"[1 2]", b"[1,2", b"{}", b"{ }",
         b'{"a":1,}', b'{"a":1 "b":2}', b'{"a"}', b'{"a":}', b'{a:1}', b"{1:2}", b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}',
         b'{"":1}', b'{"b":1,"a":{"c":[1,2.5,"x",null,true]},"aa":0}', b'"', b'"a', b'"\\', b'"\\"', b'"\\x"', b'"\\u"',
         b'"\\u12"', b'"\\u00e9\\u20ac\\uD83D\\ude00"', b'"\\ud83d"', b'"\\ud83dx"', b'"\\ud83d\\n"', b'"\\ud83d\\u0041"',
         b'"\\ude00"', b'"\\u0000"', b'"\\/\\b\\f\\n\\r\\t\\\\\\""', b'"\t"', b'"\x00"', b'"\x7f"', b"1\x00", b"\x00",
         b"\xef\xbb\xbf1", b'"\xc3\xa9"', b'"\xc0\x80"', b'"\xc1\xbf"', b'"\xe0\x80\x80"', b'"\xe0\xa0\x80"', b'"\xed\xa0\x80"',
         b'"\xf0\x80\x80\x80"', b'"\xf0\x9f\x98\x80"', b'"\xf4\x8f\xbf\xbf"', b'"\xf4\x90\x80\x80"', b'"\xf5\x80\x80\x80"',
         b'"\x80"', b'"\xc3"', b'"\xe2\x82"', b"\xa0 1", b"[" * 64 + b"]" * 64, b"[" * 65 + b"]" * 65, b"[" * 300, b"//x\n1",
         b"NaN", b"Infinity", b"'a'", b"[true,false,null]", b" \t\r\n[1]\n ", b"\x0b1", b"\x0c1"]
TOKENS = [b'"', b"\\", b"\\u", b"d83d", b"{", b"}", b"[", b"]", b",", b":", b"e", b"-", b".", b"0", b"1e9", b"\x00", b"\xc3", b"\xed\xa0",
          b" ", b"true", b'"a":1', b"\\u0000"]


def own_documents():
    for pattern in ("bench/peers/*.json", "tests/fixtures/**/*.json", "tests/fuzz/corpus/config/*"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            with open(path, "rb") as f:
                if (document := f.read()) and len(document) < 100_000:
                    yield document


def mutate(document, draw):
    document = bytearray(document)
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(document))
        kind = draw.randrange(4)
        if kind == 0:
            document[at:at] = draw.choice(TOKENS)
        elif kind == 1:
            del document[at:at + draw.randint(1, 4)]
        elif kind == 2 and at < len(document):
            document[at] = draw.randrange(256)
        else:
            del document[at:]
    return bytes(document)


def dump(program, path):
    done = subprocess.run([program, path], stdout=subprocess.PIPE, check=True)
    return done.stdout.split(b"\n")


def main():
    seed = int(os.environ.get("PEN_SEED", "20261130"))
    print(f"# PEN_SEED={seed}")
    draw = random.Random(seed)
    documents = EDGES + list(own_documents())
    small = [d for d in documents if len(d) < 3000]
    documents += [mutate(draw.choice(small), draw) for _ in range(MUTATIONS)]
    with tempfile.NamedTemporaryFile() as f:
        for document in documents:
            f.write(struct.pack("<I", len(document)) + document)
        f.flush()
        results = [dump(program, f.name) for program in sys.argv[1:3]]
    assert len(results[0]) == len(documents) + 1, f"{len(results[0])} lines for {len(documents)} documents"
    differ = [i for i in range(len(documents)) if results[0][i] != results[1][i]]
    taken = sum(line != b"refused" for line in results[0][:-1])
    for i in differ[:5]:
        print(f"# {documents[i][:200]!r}\n#   jansson: {results[0][i][:200]!r}\n#   ours: {results[1][i][:200]!r}")
    print(f"# {len(documents)} documents, {taken} of them taken")
    assert taken > 100 and not any(b"?" in line and b'"' not in line for line in results[1])
    print("1..1")
    print(("not " if differ else "") + f"ok 1 - both parsers agree on {len(documents) - len(differ)} documents")
    sys.exit(1 if differ else 0)


main()
