"""Limits of a child process by control groups of its own, of version 1 or 2: bytes of
memory, bytes a second of a drive each way.  Needs root.
"""

import os

ROOT = "/sys/fs/cgroup"


def own(controller):
    """(folder, version) of this process's group for `controller`; None: there is none."""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        for line in f:
            _, controllers, path = line.strip().split(":", 2)
            if controller in controllers.split(","):
                return os.path.join(ROOT, controller, path.lstrip("/")), 1
            if not controllers and os.path.exists(os.path.join(ROOT, "cgroup.controllers")):
                folder = os.path.join(ROOT, path.lstrip("/"))
                with open(os.path.join(folder, "cgroup.controllers"), encoding="ascii") as has:
                    if {"blkio": "io"}.get(controller, controller) in has.read().split():
                        return folder, 2
    return None


def write(folder, file, text):
    with open(os.path.join(folder, file), "w", encoding="ascii") as f:
        f.write(text)


class Group:
    """One group with one limit, from `limits` {version: [(file, text)]}.  OSError where it
    cannot be made."""

    def __init__(self, controller, limits):
        found = own(controller)
        if not found:
            raise OSError(f"no control group of {controller}")
        parent, self.version = found
        self.folder = os.path.join(parent, f"penstock-bench-{os.getpid()}")
        os.mkdir(self.folder)
        try:
            for file, text in limits[self.version]:
                write(self.folder, file, text)
        except OSError:
            self.close()
            raise

    def enter(self):
        """Of the calling process, for preexec_fn."""
        write(self.folder, "cgroup.procs", str(os.getpid()))

    def close(self):
        os.rmdir(self.folder)


def memory(limit):
    return Group("memory", {1: [("memory.limit_in_bytes", str(limit))],
                            2: [("memory.max", str(limit))]})


def drive(directory, rate):
    """The drive of `directory` moves `rate` bytes a second in each direction."""
    device = os.stat(directory).st_dev
    # A partition is limited by its whole drive's number.
    sys_name = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if os.path.exists(os.path.join(sys_name, "partition")):
        with open(os.path.join(os.path.dirname(sys_name), "dev"), encoding="ascii") as f:
            number = f.read().strip()
    else:
        number = f"{os.major(device)}:{os.minor(device)}"
    return Group("blkio", {1: [("blkio.throttle.read_bps_device", f"{number} {rate}"),
                               ("blkio.throttle.write_bps_device", f"{number} {rate}")],
                           2: [("io.max", f"{number} rbps={rate} wbps={rate}")]})
