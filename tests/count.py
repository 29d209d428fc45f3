# SPDX-License-Identifier: BSD-3-Clause
"""
count.py FOLDER...: counts the test results of build folders from meson's own records and prints
which tests failed, with the ends of what they said, and then "N passed, N failed, N skipped".
count.py --logs FOLDER...: prints all that the failed tests said.

Each subtest counts; a test that died, hung or ran fewer subtests than it planned counts as a
failure, and so does a folder without any result: it was not built. Status 1 if any failed or was
skipped, since each test here needs its peer.
"""
import glob
import json
import os
import sys
import xml.etree.ElementTree

GOOD = ("OK", "SKIP", "EXPECTEDFAIL")
SHOWN_LINES, SHOWN_TESTS, LONGEST_LINE = 12, 8, 200


def records(folder):
    """What meson noted of each test that ran."""
    for path in sorted(glob.glob(os.path.join(folder, "meson-logs", "*.json"))):
        with open(path) as log:
            yield from map(json.loads, log)


def count(folder):
    passed = failed = skipped = 0
    complained = set()
    for path in glob.glob(os.path.join(folder, "meson-logs", "*.junit.xml")):
        for suite in xml.etree.ElementTree.parse(path).getroot().iter("testsuite"):
            for case in suite.iter("testcase"):
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    complained |= {suite.get("name"), case.get("name")}
                elif case.find("skipped") is not None:
                    skipped += 1
                else:
                    passed += 1
    # A test that is killed after its first subtests leaves only those in the junit record, whose
    # name of a suite ends with the test's own name; that of a plain test is its case's.
    failed += sum(1 for test in records(folder) if test["result"] not in GOOD and
                  not any(known.endswith(test["name"].split(" / ")[-1]) for known in complained))
    if passed + failed + skipped == 0:
        failed = 1
    return passed, failed, skipped


def said(test):
    return (test.get("stdout", "") + test.get("stderr", "")).splitlines()


def essence(lines):
    """Of the Test Anything Protocol what follows each failure, of anything else the end."""
    starts = [at for at, line in enumerate(lines) if line.startswith("not ok")]
    if not starts:
        return lines[-SHOWN_LINES:]
    each = max(2, SHOWN_LINES // len(starts))
    chosen = []
    for at in starts[:SHOWN_LINES // 2]:
        chosen += [lines[at]]
        for line in lines[at + 1:at + each]:
            if not line.startswith("#"):
                break
            chosen.append(line)
    return chosen


def failures(folder):
    tests = list(records(folder))
    if not tests:
        yield f"{folder}: no results", ["not built, or meson did not run"]
    for test in tests:
        if test["result"] not in GOOD:
            yield f"{folder}: {test['name']}: {test['result']}", said(test)


def show(folders, whole):
    found = [failure for folder in folders for failure in failures(folder)]
    for number, (title, lines) in enumerate(found):
        print(f"\n=== {title}" if whole else f"failed: {title}")
        if whole:
            print("\n".join(lines))
        elif number < SHOWN_TESTS:
            print("\n".join("    " + line[:LONGEST_LINE] for line in essence(lines)))


def main(arguments):
    if arguments[0] == "--logs":
        show(arguments[1:], whole=True)
        return 0
    show(arguments, whole=False)
    passed, failed, skipped = (sum(column) for column in zip(*map(count, arguments)))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
