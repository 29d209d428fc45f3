# SPDX-License-Identifier: BSD-3-Clause
"""Installs into an empty folder and looks at what a package would hold."""
import json
import os
import stat
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["VIRTWIRE_BUILD"], os.environ["VIRTWIRE_SOURCE"]
RESULTS = []


def ok(condition, name, detail=""):
    RESULTS.append(bool(condition))
    print(f"{'ok' if condition else 'not ok'} {len(RESULTS)} - {name}", flush=True)
    if not condition:
        for line in str(detail).splitlines():
            print("# " + line, flush=True)


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(where, name), folder)
                  for where, _, names in os.walk(folder) for name in names)


def option(name):
    options = json.loads(run("meson", "introspect", "--buildoptions", BUILD).stdout)
    return next(entry["value"] for entry in options if entry["name"] == name)


def check_program(root, prefix):
    program = os.path.join(root, prefix, option("bindir"), "virtwire")
    ok(os.access(program, os.X_OK), "the program is installed", files_below(root))
    version = run(program, "--version")
    ok(version.returncode == 0 and "0." in version.stdout, "and tells its version", version)
    ok(run(program, "device", "--help").returncode == 0, "and explains itself")
    undefined = run("ldd", program).stdout
    ok("not found" not in undefined and BUILD not in undefined,
       "it needs no library of the build tree", undefined)


def check_tree(root, prefix, files):
    stray = [name for name in files if not name.startswith(prefix + "/")]
    ok(not stray, "nothing is installed outside the prefix", stray)
    odd = [name for name in files
           if stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) & 0o6022]
    ok(not odd, "no file is setuid, or writable for others", odd)
    manuals = {os.path.basename(name).removesuffix(".gz") for name in files if "/man" in name}
    ours = {name for name in os.listdir(os.path.join(SOURCE, "man"))
            if name[-2:] in (".1", ".3", ".7")}
    # and more names: a page of the library serves several functions (test_library.py)
    ok(ours and manuals >= ours, "every manual page is installed", f"{manuals} of {ours}")
    leaks = []
    for name in files:
        with open(os.path.join(root, name), "rb") as file:
            content = file.read()
        binary = content.startswith((b"\x7fELF", b"!<arch>"))  # has debugging information
        if os.fsencode(BUILD) in content and not binary:
            leaks.append(name)
    ok(not leaks, "no text names the build tree", leaks)


def check_headers(root, prefix, files):
    """Public headers compile alone, as strict C11 and as C++, with nothing but the installed tree."""
    include = os.path.join(root, prefix, "include")
    headers = [name for name in files if name.endswith(".h")]
    sources = files_below(os.path.join(SOURCE, "include"))
    ok(len(headers) == len(sources), "every public header is installed", f"{headers} of {sources}")
    for header in headers:
        path = os.path.join(root, header)
        c = run("cc", "-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-I" + include,
                "-fsyntax-only", "-x", "c", path)
        ok(c.returncode == 0, f"{os.path.basename(header)} is C11", c.stderr)


def check_make_builds_what_it_installs():
    """`make && make install` with nothing else in between, such as the tests' own needs."""
    commands = run("make", "-n", "-C", SOURCE, "all").stdout.splitlines()
    targets = next((line.split()[3:] for line in commands if line.startswith("ninja -C ")), [])
    built = run("ninja", "-C", BUILD, "-t", "query", *targets).stdout.split() + targets
    installed = json.loads(run("meson", "introspect", "--installed", BUILD).stdout)
    wanted = [os.path.relpath(path, BUILD) for path in installed if path.startswith(BUILD + "/")]
    wanted = [path for path in wanted if not os.path.islink(os.path.join(BUILD, path))
              and not path.startswith("meson-")]  # made by meson itself
    missing = [path for path in wanted if path not in built]
    ok(wanted and not missing, "make builds all that make install installs", missing or commands)


def check_configure():
    """Ctrl-C while meson wrote build.ninja left a folder that no `make` could use any more."""
    with tempfile.TemporaryDirectory(prefix="virtwire-configure-") as project:
        with open(os.path.join(project, "meson.build"), "w", encoding="ascii") as file:
            file.write("project('empty')\n")
        ninja = os.path.join(project, "build", "build.ninja")
        for _ in range(2):
            done = subprocess.run([os.path.join(SOURCE, "contrib", "configure.sh"), "build"],
                                  cwd=project, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=60)
            there = os.path.exists(ninja)
            if there:
                os.unlink(ninja)
        ok(done.returncode == 0 and there, "a build folder without build.ninja is set up again",
           done.stdout + done.stderr)


def main():
    check_configure()
    check_make_builds_what_it_installs()
    with tempfile.TemporaryDirectory(prefix="virtwire-install-") as root:
        done = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
        ok(done.returncode == 0, "meson install --destdir", done.stdout + done.stderr)
        prefix = option("prefix").strip("/")
        files = files_below(root)
        check_program(root, prefix)
        check_tree(root, prefix, files)
        check_headers(root, prefix, files)
    print(f"1..{len(RESULTS)}")
    sys.exit(0 if all(RESULTS) else 1)


main()
