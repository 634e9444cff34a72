#!/usr/bin/env python3
"""Each rule of lint.py finds what it forbids and lets pass what it allows."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = """| folder | layer | what |
| --- | --- | --- |
| `base/` | 0 | a |
| `io/` | 1 | b |
| `kernels/` | 1 | c |
| `src/model/` | 3 | d |
| `src/data/` | 3 | e |
"""
GUARD = "#ifndef PEN_{0}_H\n#define PEN_{0}_H\n{1}#endif\n"

# rule, what stands in the message (None: nothing is found), the tree's files
CASES = [
    ("layers", None, {"io/a.c": '#include "base/b.h"\n#include "io/a.h"\n', "io/a.h": "",
                      "base/b.h": ""}),
    ("layers", "base (0) includes io/a.h of io (1)",
     {"base/b.c": '#include "io/a.h"\n', "io/a.h": ""}),
    ("layers", "kernels (1) includes io/a.h of io (1)",
     {"kernels/b.c": '#include "io/a.h"\n', "io/a.h": ""}),
    ("layers", "src/model (3) includes src/data/d.h",
     {"src/model/m.c": '#include "src/data/d.h"\n', "src/data/d.h": ""}),
    ("layers", "not a path from the root", {"io/a.c": '#include "a.h"\n', "io/a.h": ""}),
    ("layers", "in no layer", {"io/a.c": '#include "else/a.h"\n', "else/a.h": ""}),
    ("circles", None, {"io/a.h": '#include "io/b.h"\n', "io/b.h": "",
                       "io/c.h": '#include "io/a.h"\n#include "io/b.h"\n'}),
    ("circles", "io/a.h -> io/b.h -> io/a.h",
     {"io/a.h": '#include "io/b.h"\n', "io/b.h": '#include "io/a.h"\n'}),
    ("headers", None, {"io/a.h": GUARD.format("IO_A", "#include <stddef.h>\nsize_t pen_a(void);\n")}),
    ("headers", "does not compile alone",
     {"io/a.h": GUARD.format("IO_A", "size_t pen_a(void);\n")}),
    ("headers", "the guard is not PEN_IO_A_H", {"io/a.h": GUARD.format("IO_B", "")}),
    ("length", None, {"io/a.c": "\n" * 999}),
    ("length", "1000 lines", {"io/a.c": "\n" * 1000}),
    ("third-party", None, {"io/a.c": "#include <foreign.h>\n#include <stdio.h>\n",
                           "io/b.c": "#include <sys/mman.h>\n#include <stdio.h>\n"}),
    ("third-party", "<foreign.h> is included by io/a.c:1, io/b.c:1",
     {"io/a.c": "#include <foreign.h>\n", "io/b.c": "#include <foreign.h>\n"}),
    ("have", None, {"io/a.c": "#ifdef __AVX2__\n#endif\n"}),
    ("have", "io/a.c:1", {"io/a.c": "#ifdef HAVE_URING\n#endif\n"}),
    ("have", "io/a.c:1", {"io/a.c": "#if defined(HAVE_URING)\n#endif\n"}),
    ("paths", None, {"a.md": "../shared/data, src/work/x, https://a.b/root/c\n"}),
    ("paths", "a.md:1", {"a.md": "see /wo" "rk/x\n"}),
    ("paths", "a.md:1", {"a.md": "'/ho" "me/x'\n"}),
    ("ptx", None, {"kernels/cuda/ptx.cuh": 'asm volatile("a;");\n', "a.cu": "/* asm */ int asmx(int);\n",
                   "a.c": 'asm("");\n'}),
    ("ptx", "kernels/cuda/a.cu:2", {"kernels/cuda/a.cu": '\n  asm volatile("a;");\n'}),
    ("ptx", "b.cuh:1", {"b.cuh": '__asm__("a;");\n'}),
    ("todo", None, {"a.c": 'mkdtemp("XXXXXX"); /* TODOS */\n'}),
    ("todo", "a.c:1", {"a.c": "/* FIX" "ME */\n"}),
    ("options", None, {"src/cli/verb_train.c": "config->lr;\n",
                       "src/cli/options.c": "DOUBLE(lr), 1\n#define N_OPTIONS\n"}),
    ("options", "nothing reads lr", {"src/cli/verb_train.c": "config->lrx;\n",
                                     "src/cli/options.c": "DOUBLE(lr), 1\n#define N_OPTIONS\n"}),
]


def lint(rule, root, build=None):
    command = [sys.executable, os.path.join(HERE, "lint.py"), rule, "--root", root]
    if build:
        command += ["--build", build]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def run_case(rule, wanted, files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**files, "docs/ARCHITECTURE.md": LAYERS}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
        code, out = lint(rule, root)
    if wanted is None:
        return code == 0, out
    return code == 1 and wanted in out, out


def run_symbols(symbol, found):
    with tempfile.TemporaryDirectory() as build:
        source = os.path.join(build, "a.c")
        with open(source, "w") as f:
            f.write(f"int {symbol}(void) {{ return 0; }}\nstatic int hidden;\n"
                    f"int *pen_b(void) {{ return &hidden; }}\n")
        subprocess.run(["cc", "-c", source, "-o", source + ".o"], check=True)
        subprocess.run(["ar", "rc", os.path.join(build, "liba.a"), source + ".o"], check=True)
        code, out = lint("symbols", build, build)
    return (code == 1 and symbol in out) if found else (code == 0), out


def main():
    results = [(f"{rule}: {wanted or 'lets pass'}", *run_case(rule, wanted, files))
               for rule, wanted, files in CASES]
    results.append(("symbols: lets pass", *run_symbols("pen_a", False)))
    results.append(("symbols: finds", *run_symbols("other_a", True)))
    print(f"1..{len(results)}")
    for number, (name, good, out) in enumerate(results, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name.replace('#', '')}")
        if not good:
            print("# " + out.replace("\n", "\n# "))
    sys.exit(not all(good for _, good, _ in results))


if __name__ == "__main__":
    main()
