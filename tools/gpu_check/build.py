"""Stage build: what machine this is, and the program and its plugin from this tree alone."""
import glob
import os
import re
import shutil
import subprocess
import sys

from .common import ROOT, Absent, Failed, Item, cuda_folders

FACTS = {
    "gpu": ["nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version,pcie.link.gen.max,"
            "pcie.link.width.max,power.limit", "--format=csv,noheader"],
    "nvcc": ["nvcc", "--version"],
    "cc": ["cc", "--version"],
    "cpu": ["sh", "-c", "grep -m1 'model name' /proc/cpuinfo; nproc"],
    "memory": ["sh", "-c", "grep -E 'MemTotal|MemAvailable' /proc/meminfo; ulimit -l"],
    "kernel": ["uname", "-r"],
    "disk": ["df", "-h", "."],
    "torch": [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
}
CUBLAS = ("cublasLt.h", "cublas_api.h")


def machine(check):
    """Nothing here is needed; all of it is worth knowing beside a number."""
    facts = {}
    for name, command in FACTS.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                                  env=check.environment())
            facts[name] = done.stdout.strip() or done.stderr.strip()[-200:]
        except (OSError, subprocess.TimeoutExpired) as why:
            facts[name] = f"unknown: {why}"
    return facts


def find_tool(name, module):
    """A command line: of PATH, of this Python's scripts, or a module of this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    for path in (shutil.which(name), beside if os.path.exists(beside) else None):
        if path:
            return [path]
    try:
        subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, check=True, timeout=60)
        return [sys.executable, "-m", module]
    except (OSError, subprocess.SubprocessError):
        raise Failed(f"{name} is missing; carry it as a wheel: python3 -m pip download {name}, "
                     f"and there python3 -m pip install --no-index --find-links DIR {name}") from None


def capability():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60, check=True)
        return sorted({line.strip().replace(".", "") for line in done.stdout.splitlines() if line.strip()}, key=int)
    except (OSError, subprocess.SubprocessError):
        return ["90"]  # built all the same; what runs it will say that there is no device


def toolkit_of(check):
    """A folder laid out as meson's dependency('cuda') wants it: a toolkit that has cuBLAS, or links
    to a toolkit's files with cuBLAS from Python's packages beside them."""
    roots = [os.path.dirname(folder) for folder in cuda_folders("bin")]
    roots = [root for root in roots if os.path.exists(os.path.join(root, "bin", "nvcc"))]
    if not roots:
        raise Failed("there is no nvcc here: not in CUDA_PATH, not in /usr/local/cuda, not in PATH")
    for root in roots:
        if os.path.exists(os.path.join(root, "include", CUBLAS[0])) and \
                os.path.exists(os.path.join(root, "lib64", "libcublasLt.so")):
            return root
    packages = [path for entry in sys.path for path in glob.glob(os.path.join(entry, "nvidia", "**", CUBLAS[0]),
                                                                 recursive=True)]
    if not packages:
        raise Failed(f"neither {roots[0]} nor Python's packages have {CUBLAS[0]}")
    return join_toolkit(roots[0], os.path.dirname(packages[0]), os.path.join(check.build, "cuda"))


def join_toolkit(root, headers, joined):
    shutil.rmtree(joined, ignore_errors=True)
    for folder in ("include", "lib64"):
        os.makedirs(os.path.join(joined, folder))
        for path in glob.glob(os.path.join(root, folder, "*")):
            os.symlink(path, os.path.join(joined, folder, os.path.basename(path)))
    for name in CUBLAS:
        link(os.path.join(headers, name), os.path.join(joined, "include", name))
    for path in glob.glob(os.path.join(os.path.dirname(headers), "lib", "libcublas*.so*")):
        name = os.path.basename(path)
        link(path, os.path.join(joined, "lib64", name))
        link(path, os.path.join(joined, "lib64", re.sub(r"\.so.*", ".so", name)))
    for name in ("bin", "nvvm", "version.json", "version.txt"):
        if os.path.exists(os.path.join(root, name)):
            os.symlink(os.path.join(root, name), os.path.join(joined, name))
    return joined


def link(path, at):
    if os.path.exists(path) and not os.path.lexists(at):
        os.symlink(path, at)


def configure(check, folder, meson, toolkit, architectures):
    env = {"CUDA_PATH": toolkit, "CUDA_HOME": toolkit, "PATH": os.path.join(toolkit, "bin") + ":" + os.environ["PATH"]}
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        check.run([*meson, "setup", folder, "-Dtests=false", "-Dcuda=enabled",
                   "-Dgpu_arch=" + ",".join(architectures)], 120, env=env, cwd=ROOT)
    return env


def compile_all(check):
    if check.fake:
        for path in (check.penstock, check.check_device):
            if not os.path.exists(path):
                raise Failed(f"{check.build} has no {os.path.relpath(path, check.build)}; build it first")
        return {"build": "the one that --fake names"}
    meson, ninja = find_tool("meson", "mesonbuild.mesonmain"), find_tool("ninja", "ninja")
    toolkit, architectures = toolkit_of(check), capability()
    env = configure(check, check.build, meson, toolkit, architectures)
    if check.options.again:
        check.run([*ninja, "-C", check.build, "-t", "clean"], 60, env=env)
    done = check.run([*ninja, "-C", check.build], 400, env=env)
    warnings = [line for line in done.output.splitlines() if "warning:" in line]
    return {"toolkit": toolkit, "architectures": architectures, "seconds": round(done.seconds, 1),
            "warnings": warnings[:20]}


def configured_anew(check):
    """The rehearsal of configuring, where nothing is compiled."""
    if not check.fake:
        raise Absent("for rehearsals alone")
    meson = find_tool("meson", "mesonbuild.mesonmain")
    try:
        toolkit = toolkit_of(check)
    except Failed as why:
        raise Absent(str(why)) from None
    folder = os.path.join(check.work, "configured")
    shutil.rmtree(folder, ignore_errors=True)
    env = configure(check, folder, meson, toolkit, ["90"])
    done = check.run([*find_tool("ninja", "ninja"), "-C", folder, "-n"], 60, env=env)
    if "penstock-cuda.so" not in done.output:
        raise Failed("the plugin is not among what would be built")
    return {"toolkit": toolkit}


def opened(check):
    """The device as the program sees it."""
    done = check.run([check.penstock, "doctor"], 120, ok=(0, 1))  # 1: something else is missing
    line = [text for text in done.output.splitlines() if re.search(r"CUDA device \d", text)]
    if not line:
        said = [text.split("GPU", 1)[1].strip() for text in done.output.splitlines() if "GPU " in text]
        raise Failed("doctor finds no CUDA device: " + " ".join(said))
    return {"device": line[0].strip()}


ITEMS = [Item("machine", 10, "which machine this is", machine),
         Item("compile", 240, "program, plugin and checks from this tree", compile_all),
         Item("configure", 5, "a rehearsal of configuring", configured_anew),
         Item("device", 20, "the device opened by the program", opened)]
