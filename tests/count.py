# SPDX-License-Identifier: BSD-3-Clause
"""
count.py FOLDER...: counts the test results of build folders from meson's own records (each subtest
counts, and a test that died counts as a failure) and prints "N passed, N failed, N skipped". Status 1 if any failed or was skipped, or if a
folder has none: each test here needs its peer, and a result that is not there is not a success.
"""
import glob
import json
import os
import sys
import xml.etree.ElementTree


def died(folder):
    """
    Names of the tests that did not end well as a whole: a test that is killed after its first
    subtests leaves only those in the junit record.
    """
    for path in glob.glob(os.path.join(folder, "meson-logs", "*.json")):
        with open(path) as log:
            for line in log:
                test = json.loads(line)
                if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
                    yield test["name"]


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
    # junit's name of a suite ends with the test's own name; that of a plain test is its case's.
    failed += sum(1 for name in died(folder)
                  if not any(name.split(" / ")[-1] in known for known in complained))
    return passed, failed, skipped


def main(folders):
    counts = [count(folder) for folder in folders]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or skipped or not all(any(row) for row in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
