# SPDX-License-Identifier: BSD-3-Clause
"""
count.py FOLDER...: counts the test results of build folders from meson's own records (each subtest
counts) and prints "N passed, N failed, N skipped". Status 1 if any failed or was skipped, or if a
folder has none: each test here needs its peer, and a result that is not there is not a success.
"""
import glob
import os
import sys
import xml.etree.ElementTree


def count(folder):
    passed = failed = skipped = 0
    for path in glob.glob(os.path.join(folder, "meson-logs", "*.junit.xml")):
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


def main(folders):
    counts = [count(folder) for folder in folders]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or skipped or not all(any(row) for row in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
