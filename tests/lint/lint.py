#!/usr/bin/env python3
"""Rules of docs/ARCHITECTURE.md and the style that a machine can check.

    lint.py RULE [--root DIR] [--build DIR]

Prints one line per finding and exits 1 if there are any; 77 if nothing could
be checked.  Lines that begin with "note:" do not count.
"""
import argparse
import os
import re
import subprocess
import sys

CODE = (".c", ".h")
LINES_MAX = 1000   # fails
LINES_NOTED = 600  # is noted

# Headers of the C library, the kernel and the compiler.  Whatever else stands
# between < and > is third-party.
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "arpa/", "asm/")
SYSTEM = set("""
aio alloca arm_neon assert byteswap complex cpuid ctype dirent dlfcn elf endian
errno execinfo fcntl features fenv float fnmatch ftw getopt glob iconv immintrin
inttypes langinfo libgen limits link locale malloc math mntent nmmintrin poll
pthread pty pwd regex sched semaphore setjmp signal spawn stdalign stdarg
stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings
termios time ucontext uchar unistd utime wchar wctype wordexp x86intrin
""".split())

# Headers that wrap intrinsics are compiled with what their callers are.
X86_FLAGS = ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq",
             "-mavx512vl", "-mavx512bf16"]


def tracked_files(root):
    """Paths below root: what git tracks, or all there is outside build folders."""
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached"],
                             capture_output=True, check=True).stdout
        names = [n for n in out.decode().split("\0") if n]
    except (subprocess.CalledProcessError, FileNotFoundError):
        names = []
        for folder, below, files in os.walk(root):
            below[:] = [b for b in below if not b.startswith((".", "build"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))


def code_files(root):
    return [n for n in tracked_files(root) if n.endswith(CODE)]


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def includes(text):
    """(line number, kind, path) of each #include; kind is '"' or '<'."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(1), match.group(2)


LAYERS = "docs/ARCHITECTURE.md"


def layer_table(root):
    """Folder -> number, from the rows "| `folder/` | number |" of LAYERS."""
    if not os.path.exists(os.path.join(root, LAYERS)):
        return {}
    rows = re.findall(r"^\| `([a-z][a-z/]*)/` \| (\d+) \|", read(root, LAYERS), re.M)
    return {folder: int(number) for folder, number in rows}


def folder_of(name, table):
    for folder in sorted(table, key=len, reverse=True):
        if name.startswith(folder + "/"):
            return folder
    return None


def rule_layers(root, build):
    table = layer_table(root)
    if not table:
        yield f"no layer table in {LAYERS}"
        return
    for name in code_files(root):
        own = folder_of(name, table)
        for number, kind, path in includes(read(root, name)):
            if kind != '"':
                continue
            if not os.path.exists(os.path.join(root, path)):
                yield f"{name}:{number}: \"{path}\" is not a path from the root"
                continue
            if own is None:
                continue  # tests, benches: they may see all
            other = folder_of(path, table)
            if other is None:
                yield f"{name}:{number}: {path} is in no layer of {LAYERS}"
            elif other != own and table[other] >= table[own]:
                yield (f"{name}:{number}: {own} ({table[own]}) includes {path} of "
                       f"{other} ({table[other]})")


def rule_circles(root, build):
    graph = {name: [p for _, kind, p in includes(read(root, name)) if kind == '"']
             for name in code_files(root)}
    done, found = set(), set()

    def visit(name, path):
        if name in path:
            circle = path[path.index(name):]
            key = frozenset(circle)
            if key not in found:
                found.add(key)
                yield " -> ".join(circle + [name])
            return
        if name in done:
            return
        for other in graph.get(name, ()):
            yield from visit(other, path + [name])
        done.add(name)

    for name in graph:
        yield from visit(name, [])


def rule_headers(root, build):
    compiler = os.environ.get("CC", "cc").split()
    is_arm = os.uname().machine in ("aarch64", "arm64")
    for name in code_files(root):
        if not name.endswith(".h") or name.startswith("tests/"):
            continue
        system = [path for _, kind, path in includes(read(root, name)) if kind == "<"]
        if ("arm_neon.h" if not is_arm else "immintrin.h") in system:
            yield f"note: {name} is for another machine"
            continue
        flags = X86_FLAGS if "immintrin.h" in system else []
        done = subprocess.run(
            compiler + ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra",
                        "-Wno-unused-parameter", "-Werror", "-fsyntax-only", *flags,
                        "-I", root, "-include", os.path.join(root, name),
                        "-x", "c", os.devnull],
            capture_output=True, text=True)
        if done.returncode:
            first = [l for l in done.stderr.split("\n") if "error" in l][:1]
            yield f"{name} does not compile alone: {''.join(first)}"
        guard = "PEN_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        if f"#ifndef {guard}\n#define {guard}\n" not in read(root, name):
            yield f"{name}: the guard is not {guard}"


def rule_length(root, build):
    for name in code_files(root):
        n = read(root, name).count("\n")
        if n >= LINES_MAX:
            yield f"{name} has {n} lines; {LINES_MAX} is too many"
        elif n > LINES_NOTED:
            yield f"note: {name} has {n} lines"


def is_third_party(path):
    stem = path[:-2] if path.endswith(".h") else path
    return not path.startswith(SYSTEM_FOLDERS) and stem not in SYSTEM


def rule_third_party(root, build):
    users = {}
    for name in code_files(root):
        # bench/ measures libraries without us: one file there, one elsewhere
        where = name.startswith("bench/")
        for number, kind, path in includes(read(root, name)):
            if kind == "<" and is_third_party(path):
                users.setdefault((path, where), []).append(f"{name}:{number}")
    for (path, _), names in sorted(users.items()):
        if len(names) > 1:
            yield f"<{path}> is included by {', '.join(names)}; one file may"


def rule_have(root, build):
    for name in code_files(root):
        for number, line in enumerate(read(root, name).split("\n"), 1):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*\b(HAVE|WITH|USE)_", line):
                yield f"{name}:{number}: the build chooses between files, not {line.strip()}"


def rule_symbols(root, build):
    if not build:
        sys.exit(77)
    libraries = []
    for folder, below, files in os.walk(build):
        below[:] = [b for b in below if b not in ("tests", "subprojects", "meson-private")]
        libraries += [os.path.join(folder, f) for f in files if f.endswith(".a")]
    if not libraries:
        print("no static libraries in the build folder")
        sys.exit(77)
    for library in sorted(libraries):
        out = subprocess.run(["nm", "-g", "--defined-only", library],
                             capture_output=True, text=True).stdout
        for line in out.split("\n"):
            fields = line.split()
            if len(fields) != 3:
                continue
            symbol = fields[2]
            if not symbol.startswith(("pen_", "__asan", "__odr_asan", "__tsan", "__ubsan",
                                      "__llvm", "__start_", "__stop_", "__sancov")):
                yield f"{os.path.basename(library)}: {symbol} does not begin with pen_"


def rule_ptx(root, build):
    """Instructions of a GPU stand in one header, which a stand-in can replace."""
    for name in tracked_files(root):
        if not name.endswith((".cu", ".cuh")) or os.path.basename(name) == "ptx.cuh":
            continue
        for number, line in enumerate(read(root, name).split("\n"), 1):
            if re.search(r"\b(?:asm|__asm|__asm__)\b\s*(?:(?:volatile|__volatile__)\b\s*)?(?:\(|$)", line):
                yield f"{name}:{number}: PTX outside of ptx.cuh: {line.strip()[:80]}"


def text_lines(root):
    for name in tracked_files(root):
        with open(os.path.join(root, name), "rb") as f:
            data = f.read()
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            yield name, number, line


def rule_paths(root, build):
    pattern = re.compile(r"(?:^|[\s\"'=(:`\[,])/(?:wo" r"rk|ho" r"me|ro" r"ot|Us" r"ers)/")
    for name, number, line in text_lines(root):
        if pattern.search(line):
            yield f"{name}:{number}: a path of one machine: {line.strip()[:80]}"


def rule_todo(root, build):
    pattern = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
    for name, number, line in text_lines(root):
        if pattern.search(line):
            yield f"{name}:{number}: unfinished: {line.strip()[:80]}"


def rule_options(root, build):
    """Every field of struct pen_config is used by a verb: no dead option."""
    folder = os.path.join(root, "src/cli")
    if not os.path.exists(os.path.join(folder, "verb_train.c")):
        print("src/cli/verb_train.c is not there: options have no reader yet")
        sys.exit(77)
    table = read(root, "src/cli/options.c")
    fields = re.findall(r"\b(?:STRING|LIST|COUNTS|SIZES|U64|DOUBLE|SIZE|BOOL|ENUM)\((\w+)\),", table)
    readers = "".join(read(root, n) for n in code_files(root)
                      if n.startswith("src/cli/") and n.endswith(".c")
                      and os.path.basename(n) not in ("options.c", "options_check.c"))
    readers += re.sub(r"(?s)^.*?\bN_OPTIONS\b", "", table)  # help, config, dump-config
    for field in fields:
        if not re.search(r"(?:->|\.)" + field + r"\b", readers):
            yield f"src/cli/options.c: nothing reads {field}"
    if not fields:
        yield "src/cli/options.c: no rows found"


RULES = {name[5:].replace("_", "-"): function for name, function in list(globals().items())
         if name.startswith("rule_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rule", choices=sorted(RULES))
    parser.add_argument("--root", default=os.environ.get("PEN_ROOT", "."))
    parser.add_argument("--build", default=os.environ.get("PEN_BUILD"))
    options = parser.parse_args()
    findings = list(RULES[options.rule](options.root, options.build))
    for finding in findings:
        print(finding)
    sys.exit(any(not f.startswith("note:") for f in findings))


if __name__ == "__main__":
    main()
