# SPDX-License-Identifier: BSD-3-Clause
"""
The library as a user finds it: installed into an empty folder, found by pkg-config, its header
compiled as strict C and C++, linked shared and static. Takes the build folder, the source folder and
the version; prints by the Test Anything Protocol.
"""
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BUILD, SOURCE, VERSION = sys.argv[1:4]
HEADER = os.path.join(SOURCE, "include", "virtwire", "net.h")
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
C, CXX = ["gcc", "clang"], ["g++", "clang++"]


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def run(*command, status=0, **environment):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment}, check=False)
    check(done.returncode == status,
          f"status {done.returncode}, expected {status}: {' '.join(command)}\n{done.stdout}")
    return done.stdout


def public_functions():
    """The functions that the header marks VW_API, in their order."""
    with open(HEADER, encoding="ascii") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    text = re.sub(r"#define(.*\\\n)*.*", "", text)
    return re.findall(r"\bVW_API\b[^;(]*?\b(vw_\w+)\s*\(", text)


FUNCTIONS = public_functions()


class Installed:
    """What `meson install` put into an empty folder."""

    def __init__(self, folder):
        self.root = os.path.join(folder, "root")
        self.work = os.path.join(folder, "work")
        os.mkdir(self.work)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", self.root)
        self.library = self.one("libvirtwire.so." + VERSION)
        self.libraries = os.path.dirname(self.library)
        self.archive = self.one("libvirtwire.a")
        self.packages = os.path.dirname(self.one("virtwire.pc"))

    def one(self, name):
        found = [path for path in glob.glob(os.path.join(self.root, "**", name), recursive=True)]
        check(len(found) == 1, f"{name} was installed {len(found)} times")
        return found[0]

    def flags(self, *options):
        text = run("pkg-config", *options, "virtwire", PKG_CONFIG_PATH=self.packages,
                   PKG_CONFIG_SYSROOT_DIR=self.root)
        return text.split()

    def source(self, name, text):
        path = os.path.join(self.work, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def program(self, name):
        return os.path.join(self.work, name)


INSTALLED = None


def every_function():
    """A program that needs each function, in words that C and C++ share."""
    rows = "".join(f"    (any)&{name},\n" for name in FUNCTIONS)
    return ("#include <virtwire/net.h>\n#include <stdio.h>\n\ntypedef void (*any)(void);\n\n"
            "static any volatile functions[] = {\n" + rows + "};\n\n"
            "int main(void)\n{\n    struct vw_net_options options;\n    struct vw_net *net;\n"
            "    char error[200] = \"\";\n    unsigned count = 0;\n\n"
            "    while (count < sizeof(functions) / sizeof(functions[0]) && functions[count])\n"
            "        count++;\n"
            "    vw_net_options_init(&options);\n    options.connect_ms = 0;\n"
            "    options.socket_path = \"/nowhere/at/all.sock\";\n"
            "    if (vw_net_open(&options, &net, error, sizeof(error)) >= 0 || !error[0])\n"
            "        return 1;\n"
            "    printf(\"%u functions; %s\\n\", count, error);\n    return 0;\n}\n")


# ---- the cases ----

def header_is_strict():
    "the header compiles alone, as C11 and C17, C++11 and C++20, with every warning an error"
    for name, compilers, standards in (("alone.c", C, ("c11", "c17")),
                                       ("alone.cc", CXX, ("c++11", "c++20"))):
        path = INSTALLED.source(name, "#include <virtwire/net.h>\n#include <virtwire/net.h>\n"
                                      "int virtwire_is_included;\n")
        for compiler in compilers:
            for standard in standards:
                run(compiler, "-std=" + standard, *STRICT, "-Wundef",
                    *INSTALLED.flags("--cflags"), "-c", path, "-o", os.devnull)


def exported_symbols():
    "the shared library exports what the header marks VW_API, under its version, and nothing else"
    text = run("nm", "-D", "--defined-only", "--with-symbol-versions", INSTALLED.library)
    symbols = sorted(line.split()[2] for line in text.splitlines() if line.split()[1] != "A")
    expected = sorted(f"{name}@@VIRTWIRE_0.1" for name in FUNCTIONS)
    check(len(expected) > 30, "the header was not understood")
    check(symbols == expected, "missing: " + " ".join(sorted(set(expected) - set(symbols))) +
          "; too many: " + " ".join(sorted(set(symbols) - set(expected))))


def archive_symbols():
    "the archive has all of these, keeps the rest hidden, and stays within its own prefix"
    defined = {}
    for line in run("readelf", "-sW", INSTALLED.archive).splitlines():
        row = line.split()
        if len(row) == 8 and row[4] in ("GLOBAL", "WEAK") and row[6] not in ("UND", "ABS", "Ndx"):
            defined[row[7]] = row[5]
    visible = sorted(name for name, visibility in defined.items() if visibility == "DEFAULT")
    check(visible == sorted(FUNCTIONS), "visible: " + " ".join(
        sorted(set(visible) ^ set(FUNCTIONS))))
    stray = [name for name in defined if not name.startswith("vw_")]
    check(not stray, "without the prefix: " + " ".join(stray))


def shared_object():
    "soname, links, and nothing that is needed but the C library; no path of the build"
    text = run("readelf", "-dW", INSTALLED.library)
    check("soname: [libvirtwire.so.0]" in text, text)
    needed = re.findall(r"NEEDED.*\[(.*)\]", text)
    check(all(re.match(r"libc\.so|libpthread\.so|ld-linux", name) for name in needed), str(needed))
    check("RPATH" not in text and "RUNPATH" not in text and "TEXTREL" not in text, text)
    for link in ("libvirtwire.so", "libvirtwire.so.0"):
        check(os.path.samefile(os.path.join(INSTALLED.libraries, link), INSTALLED.library), link)


def link_shared_and_static():
    "a program that needs every function, in C and in C++, runs with either library"
    for name, compilers, standard in (("every.c", C, "c11"), ("every.cc", CXX, "c++11")):
        path = INSTALLED.source(name, every_function())
        for compiler in compilers:
            for kind in ("shared", "static"):
                program = INSTALLED.program(f"every-{compiler}-{kind}")
                flags = INSTALLED.flags("--libs") if kind == "shared" else [
                    INSTALLED.archive, *[flag for flag in INSTALLED.flags("--libs", "--static")
                                         if flag != "-lvirtwire"]]
                run(compiler, "-std=" + standard, *STRICT, *INSTALLED.flags("--cflags"), path,
                    *flags, "-o", program)
                text = run(program, LD_LIBRARY_PATH=INSTALLED.libraries)
                check(text.startswith(f"{len(FUNCTIONS)} functions; "), text)
                check("/nowhere/at/all.sock" in text, text)
                uses = "libvirtwire.so.0" in run("readelf", "-dW", program)
                check(uses == (kind == "shared"), f"{program}: wrong library")


def pkg_config():
    "pkg-config knows the version and the folders"
    check(INSTALLED.flags("--modversion") == [VERSION], "wrong version")
    check("-lvirtwire" in INSTALLED.flags("--libs"), "no library")
    check("-pthread" in INSTALLED.flags("--libs", "--static"), "no -pthread")


def examples_compile():
    "each example compiles against what was installed, and says how it is used"
    examples = sorted(glob.glob(os.path.join(SOURCE, "examples", "*.c")))
    check(len(examples) >= 3, "there are no examples")
    for path in examples:
        program = INSTALLED.program(os.path.basename(path)[:-2])
        run("gcc", "-Wall", "-Wextra", "-Werror", path, *INSTALLED.flags("--cflags", "--libs"),
            "-o", program)
        text = run(program, status=2, LD_LIBRARY_PATH=INSTALLED.libraries)
        check(text.startswith("usage: "), text)


class Device:
    """`virtwire device`, ready for a front-end."""

    def __init__(self, port):
        self.socket = INSTALLED.program(port + ".sock")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "virtwire"), "device", "--socket-path=" + self.socket, "--port",
             port], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not os.path.exists(self.socket) and self.process.poll() is None:
            time.sleep(0.01)

    def __enter__(self):
        return self

    def connected(self):
        while b"connected" not in self.process.stderr.readline():
            check(self.process.poll() is None, "the device ended")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def begin_example(name, *arguments):
    return subprocess.Popen([INSTALLED.program(name), *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "LD_LIBRARY_PATH": INSTALLED.libraries})


def end_of(example):
    try:
        return example.communicate(timeout=60)[0]
    finally:
        example.kill()


def examples_run():
    "the examples send a burst, and echo"
    with Device("null") as device:
        text = run(INSTALLED.program("send_burst"), device.socket, "1000",
                   LD_LIBRARY_PATH=INSTALLED.libraries)
        check(text.startswith("1000 frames, 60000 bytes"), text)
    with Device("source") as device:
        example = begin_example("echo", device.socket)
        device.connected()
        time.sleep(0.3)
        example.send_signal(signal.SIGINT)
        text = end_of(example)
        check(re.match(r"[1-9]\d* frames sent back", text) and example.returncode == 0, text)


def example_whose_device_goes_away():
    "the example that sends a burst ends when its device is killed, and does not wait for ever"
    with Device("null") as device:
        example = begin_example("send_burst", device.socket, "4000000000")
        device.connected()
        time.sleep(0.1)
    text = end_of(example)
    check(example.returncode == 1 and "sending: " in text, f"{example.returncode}: {text}")


def manual_pages():
    "there is a manual page for each function, which names it; and for the library and the policies"
    for name in FUNCTIONS:
        with open(INSTALLED.one(name + ".3"), encoding="utf-8") as file:
            page = file.read()
        names, synopsis = (page.split(".SH ")[number] for number in (1, 2))
        check(re.search(rf"\b{name}\b", names), f"{name} is not in the NAME of its page")
        check(name + "(" in synopsis, f"{name} is not in the SYNOPSIS of its page")
    INSTALLED.one("virtwire-net.3")
    INSTALLED.one("virtwire-tx-policies.7")


def signatures_in_the_manual():
    "a page shows each function with the types that the header has"
    with open(HEADER, encoding="ascii") as file:
        header = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL))
    for name in FUNCTIONS:
        declared = re.search(rf"VW_API ([^;]*\b{name}\([^;]*\));", header).group(1)
        with open(INSTALLED.one(name + ".3"), encoding="utf-8") as file:
            synopsis = file.read().split(".SH ")[2]
        text = re.sub(r"^\.BI? ", "", synopsis, flags=re.MULTILINE).replace('"', " ")
        squeezed = re.sub(r"\s+", "", text)
        check(re.sub(r"\s+", "", declared) + ";" in squeezed, f"{name}: the header has {declared}")


def main(cases):
    global INSTALLED
    failed = 0
    print(f"1..{len(cases)}")
    with tempfile.TemporaryDirectory(prefix="virtwire-install-") as folder:
        INSTALLED = Installed(folder)
        for number, case in enumerate(cases, 1):
            try:
                case()
                print(f"ok {number} - {case.__doc__}", flush=True)
            except Exception as problem:  # each case is reported, whatever went wrong
                failed += 1
                text = str(problem) if isinstance(problem, Failure) else traceback.format_exc()
                print(f"not ok {number} - {case.__doc__}")
                print("".join(f"# {line}\n" for line in text.splitlines()), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([header_is_strict, exported_symbols, archive_symbols, shared_object,
                   link_shared_and_static, pkg_config, examples_compile, examples_run,
                   example_whose_device_goes_away, manual_pages, signatures_in_the_manual]))
