# SPDX-License-Identifier: BSD-3-Clause
"""
Reports of `virtwire bench`: the page in a browser, the JSON against its schema, comparisons, and
docs/results.md. Nothing is measured: the runs are made up.
"""
import gzip
import json
import os
import re
import tempfile

from harness import VIRTWIRE, Failure, check, check_equal, log_folder, private_folder, run, run_tests
from lab.browser import Browser
from lab.process import Process

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = os.path.join(ROOT, "docs", "virtwire-bench-1.schema.json")
HOSTILE = "<b onclick='alert(1)'>\"&\u00e9"


# ---- runs that are made up -----------------------------------------------------------------------

def sample(number, values, faulty=False):
    return {"round": number, "start": 0, "position": number % 2, "seconds": 0.3,
            "round_trip_seconds": [95e-9, 95e-9], "busy": None, "steady": True, "faulty": faulty,
            "used": True, "values": values}


def variant(name, rate, calls, samples=6, faulty=False):
    return {"name": name, "commands": f"virtwire device\nvirtwire pktgen --name={HOSTILE}",
            "features": "version_1 event_idx", "faults": "3 frames were lost" if faulty else None,
            "summary": {}, "difference": None,
            "samples": [sample(i, {"frames_per_second": rate * (1 + 0.01 * ((i * 7) % 5)),
                                   "calls_per_frame": calls, "driver_cpu_seconds_per_frame": 5e-8},
                               faulty) for i in range(samples)]}


def cell(labels, variants, error=None):
    return {"labels": labels, "cores": 2, "outcome": "failed" if error else "time is up",
            "error": error, "placement": "near", "round_trip_seconds": 95e-9, "variants": variants}


def result(name, cells):
    return {"experiment": name, "title": f"about {name}", "summary": "What is compared.",
            "headline": "frames_per_second", "slice_seconds": 0.3, "seconds": 30.0,
            "conclusion": "default: fine\n",
            "columns": [{"kind": kind, "metric": metric, "heading": heading} for kind, metric, heading
                        in (("before", "frames_per_second", "Mpps before"),
                            ("after", "frames_per_second", "Mpps after"),
                            ("gain", "frames_per_second", "gain"),
                            ("eliminated", "calls_per_frame", "calls eliminated"))],
            "cells": cells}


def document():
    long = "a label that is much longer than the labels of the experiments are"
    return {
        "format": "virtwire-bench/1", "quick": False, "interrupted": False,
        "machine": {"kernel": "Linux", "cpu": "one of two cores", "mitigations": "none",
                    "virtual_machine": "no", "virtwire": "0.1.0", "commit": "0123456789ab",
                    "dpdk": "none", "when": "2026-01-01T00:00:00Z", "command": "virtwire bench all",
                    "driver_core": 0, "device_core": 1, "system_call_seconds": 1e-7,
                    "kick_idle_seconds": 2e-7, "kick_seconds": 5e-6, "kick_latency_seconds": 9e-6,
                    "round_trip_seconds": 95e-9},
        "other_machine": None, "notes": [],
        "results": [
            result("tx-some", [
                cell({"ring": ring, "calls": where},
                     [variant("delayed", 5.2e6, 0.02), variant("deferred", 9.36e6, 0.01),
                      variant("orphan", 5.1e6, 0.02, faulty=ring == "packed")])
                for ring in ("split", "packed") for where in ("by the sender", long)]
                + [cell({"ring": HOSTILE, "calls": "none"}, [variant("delayed", 1e6, 0, samples=0),
                                                             variant("deferred", 1e6, 0, samples=0)],
                        error="no device")]),
            result("rx-some", [cell({"MTU": "9000"}, [variant("alone", 4e5, 0.5)])])]}


def new_folder():
    return tempfile.mkdtemp(dir=private_folder())


def written(content, folder=None):
    """The path of a new file."""
    descriptor, path = tempfile.mkstemp(suffix=".json", dir=folder or private_folder())
    with os.fdopen(descriptor, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def bench(*arguments, status=0):
    """What it says, on both outputs."""
    number = len(os.listdir(log_folder()))
    process = Process(f"bench-{number}", [VIRTWIRE, "bench", *arguments], log_folder())
    check_equal(process.wait(), status, f"status of virtwire bench {' '.join(arguments)}")
    with open(process.output) as file:
        return file.read()


# ---- the page ------------------------------------------------------------------------------------

# What is to be known of a page: sizes of the plots, texts that leave a drawing or lie on another.
PLOTS = """[...document.querySelectorAll("svg.plot")].map(svg => {
    const box = svg.getBoundingClientRect()
    const boxes = name => [...svg.querySelectorAll(name)].map(e => e.getBoundingClientRect())
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 ||
        b.bottom <= a.top + 2
    const pairs = [["text.label", "text.name"], ["text.name", "rect"], ["text.value", "text.percent"],
                   ["text.value", "circle.gain"], ["text.label", "text.label"]]
    const [values, gains] = boxes("text.axis"), bars = boxes("rect").map(b => b.width)
    return {width: box.width, filled: Math.max(...bars) / ((gains || box).right - values.left), height: box.height, bars: svg.querySelectorAll("rect").length,
        title: svg.querySelector("title").textContent, text: svg.textContent,
        described: svg.getAttribute("aria-labelledby").split(" ").every(
            id => document.getElementById(id).textContent.length > 20 || id.endsWith("title")),
        outside: boxes("text, rect, circle").filter(b => b.width > 0 && (b.left < box.left - 1 ||
            b.right > box.right + 1 || b.bottom > box.bottom + 1 || b.top < box.top - 1)).length,
        overlaps: pairs.map(([one, other]) => boxes(one).flatMap((a, i) => boxes(other).filter((b, j) =>
            (one != other || i < j) && !apart(a, b))).length)}})"""

# The least contrast of text to what is behind it, by the rule of the WCAG.
CONTRAST = """(() => {
    const parts = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    const light = c => { const [r, g, b] = parts(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor
        if (c != "rgba(0, 0, 0, 0)" && c != "transparent") return c } return "rgb(255, 255, 255)" }
    return Math.min(...[...document.querySelectorAll(
        "h1, h2, p, a, td, th, dt, dd, summary, pre, b, svg text")].map(e => {
            const style = getComputedStyle(e), color = e.closest("svg") ? style.fill : style.color
            const a = light(color), b = light(behind(e))
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) })) })()"""


def check_plots(browser, document):
    plots = browser.evaluate(PLOTS)
    check_equal([plot["title"] for plot in plots],
                ["tx-some: rate", "tx-some: calls a frame", "rx-some: rate", "rx-some: calls a frame"],
                "titles of the plots")
    for plot in plots:
        what = f"the plot '{plot['title']}'"
        check(plot["width"] > 700 and plot["height"] > 50, f"{what} has no size: {plot}")
        # A variant that was not measured once stretched the axis, again and again.
        check(plot["filled"] > 0.45, f"the bars of {what} fill only {plot['filled']:.2f} of it")
        check(plot["described"], f"{what} has no text that stands for it")
        check_equal(plot["outside"], 0, f"marks outside {what}")
        check_equal(plot["overlaps"], [0] * 5, f"texts in {what} that lie on others")
    check_equal([plot["bars"] for plot in plots], [12, 12, 1, 1], "bars of the plots")
    check("not measured" in plots[0]["text"] and HOSTILE in plots[0]["text"], "texts of the plot")
    check("[+80.0 %]" in plots[0]["text"], f"no gain in the plot: {plots[0]['text']}")


def page():
    "The page of a report in a browser: plots, light, dark and printed, and not a complaint"
    folder = new_folder()
    path = os.path.join(folder, "page.html")
    bench("report", written(document()), f"--html={path}")
    browser = Browser(folder, log_folder())
    browser.open(path)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    check_plots(browser, document())
    check_equal(browser.evaluate("document.querySelectorAll('table.figures').length"), 2, "tables")
    check_equal(browser.evaluate("document.querySelectorAll('[onclick], script, img').length"), 0,
                "elements that came out of texts")
    for scheme in "light", "dark":
        browser.media(scheme=scheme)
        contrast = browser.evaluate(CONTRAST)
        check(contrast >= 4.5, f"contrast of the {scheme} page: {contrast:.1f}")
        browser.screenshot(os.path.join(log_folder(), scheme + ".png"))
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.media(scheme="light")
    check(dark != browser.evaluate("getComputedStyle(document.body).backgroundColor"), "no dark page")
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
    browser.media("print", scheme="dark")
    check(browser.evaluate(CONTRAST) >= 4.5, "contrast of the printed page")
    check(browser.evaluate("""[...document.querySelectorAll('svg.plot')].every(
        svg => svg.checkVisibility({contentVisibilityAuto: true}))"""), "a plot is not printed")
    browser.pdf(os.path.join(log_folder(), "page.pdf"))
    browser.media()
    browser.open(path, width=480)
    check(browser.evaluate("document.documentElement.scrollWidth") <= 480, "a narrow page is too wide")
    check_equal(browser.complaints, [], "complaints in the console")
    check_equal(browser.requests, ["file://" + path], "what the page asked for")


def page_of_a_comparison():
    "The page of a comparison tells both machines, and what only one run has"
    folder = new_folder()
    path = os.path.join(folder, "page.html")
    other = document()
    other["machine"]["kernel"] = "Linux, newer"
    del other["results"][1]
    said = bench("compare", written(document()), written(other), f"--html={path}")
    for expected in "Kernel (A: Linux, B: Linux, newer)", "Only in A: all of rx-some.":
        check(expected in said, f"'{expected}' is not said: {said}")
    browser = Browser(folder, log_folder())
    browser.open(path)
    text = browser.evaluate("document.body.innerText")
    for expected in "Kernel (A: Linux, B: Linux, newer)", "Only in A: all of rx-some.":
        check(expected in text, f"'{expected}' is not on the page")
    (plots,) = [browser.evaluate(PLOTS)]
    check_equal(plots[0]["bars"], 24, "bars of the comparison")
    check_equal([plot["overlaps"] for plot in plots], [[0] * 5] * len(plots), "texts on others")
    check_equal(browser.complaints, [], "complaints in the console")


# ---- JSON ----------------------------------------------------------------------------------------

def valid(path):
    """Debian's jsonschema is a module of Debian's python3."""
    try:
        run("/usr/bin/python3", "-m", "jsonschema", "-i", path, SCHEMA)
    except Failure as failure:
        if "No module named" in str(failure):
            raise
        return False
    return True


def json_schema():
    "What is written as JSON keeps to the published schema"
    path = os.path.join(new_folder(), "comparison.json")
    bench("compare", written(document()), written(document()), f"--json={path}")
    with open(path) as file:
        comparison = json.load(file)
    (difference,) = {json.dumps(variant["difference"]["calls_per_frame"])
                     for cell in comparison["results"][0]["cells"]
                     for variant in cell["variants"][1:] if variant["samples"]
                     and cell["labels"]["variant"] == "delayed"}
    check_equal(json.loads(difference)["percent"], 0.0, "difference of a run to itself")
    check(valid(path), "a comparison is not valid")
    check(valid(written(document())), "the document of this test is not valid")
    for spoil in (lambda d: d.pop("machine"), lambda d: d.update(format="virtwire-bench/2"),
                  lambda d: d["results"][0].update(headline="speed"),
                  lambda d: d["results"][0]["cells"][0]["variants"][0]["samples"][0]["values"].update(
                      frames_per_second=-1)):
        spoilt = document()
        spoil(spoilt)
        check(not valid(written(spoilt)), "the schema accepts anything")
        bench("report", written(spoilt), status=1)


def metrics_are_documented():
    "Each metric is in the schema and in the manual page"
    with open(os.path.join(ROOT, "src", "bench", "bench.c")) as file:
        names = re.findall(r'\[BENCH_\w+\] = \{"(\w+)"', file.read())
    check(len(names) > 20, f"metrics of the program: {names}")
    with open(SCHEMA) as file:
        check_equal(sorted(json.load(file)["definitions"]["metric"]["enum"]), sorted(names),
                    "metrics of the schema")
    with open(os.path.join(ROOT, "man", "virtwire-bench.5")) as file:
        page = file.read().replace("\\", "")
    for name in names:
        check(f".B {name}\n" in page, f"{name} is not in the manual page")


# ---- command lines -------------------------------------------------------------------------------

def bad_command_lines():
    "What is wrong with a command line or a file is told, with status 2 or 1, and nothing is written"
    good = written(document())
    spoilt = document()
    spoilt["results"][0]["cells"][2]["variants"][1]["samples"][3]["values"]["frames_per_second"] = []
    spoilt = written(spoilt)
    other = document()
    for one in other["results"]:
        one["experiment"] += "-else"
    folder = new_folder()
    target = os.path.join(folder, "page.html")
    for status, expected, arguments in (
            (2, "name a file", ["report"]), (2, "name two files", ["compare", good]),
            (2, "is one file too many", ["report", good, good]),
            (2, "--json is none of its options", ["report", good, f"--json={target}"]),
            (2, "--readings needs --markdown", ["report", good, f"--readings={good}"]),
            (2, "an option of 'bench report'", ["compare", good, good, f"--readings={good}"]),
            (2, "--html needs a value", ["report", good, "--html"]),
            (2, "there is no option '--nonsense'", ["report", good, "--nonsense"]),
            (2, "cannot write /nonexistent/x", ["report", good, "--html=/nonexistent/x"]),
            (1, "No such file", ["report", "/nonexistent.json", f"--html={target}"]),
            (1, "results[0].cells[2].variants[1].samples[3].values.frames_per_second must be a number",
             ["compare", good, spoilt, f"--html={target}"]),
            (1, "line 1, column", ["report", written("{"), f"--html={target}"]),
            (1, "no such cell", ["report", good, f"--markdown={target}",
                                 "--readings=" + written("## tx-some\n{{a; b; c}}\n")]),
            (1, "in common", ["compare", good, written(other), f"--html={target}"])):
        said = bench(*arguments, status=status)
        check(expected in said, f"'{expected}' is not said by bench {' '.join(arguments)}: {said}")
    check_equal(os.listdir(folder), [], "files that are left")
    for command in "report", "compare":
        check("example" in bench(command, "--help"), f"no help of {command}")


def control_characters():
    "Control characters in a file do not reach the terminal, whether it is a report or refused"
    for order in "\x1b]0;owned\x07", "\x9b31m", "\x7f\r":
        bad = document()
        bad["notes"] = [f"note {order}"]
        bad["results"][0]["cells"][0]["variants"][0]["name"] += order
        bad["results"][0]["title"] += order
        refused = document()
        refused["results"][0]["cells"][0]["variants"][0]["samples"][0]["values"][order] = 1
        for said in bench("report", written(bad)), bench("report", written(refused), status=1):
            found = [character for character in said
                     if character != "\n" and (ord(character) < 32 or 127 <= ord(character) < 160)]
            check_equal(found, [], f"control characters in {said!r}")


def fifo():
    "A FIFO that nobody writes to is refused, and not waited for"
    path = os.path.join(new_folder(), "fifo")
    os.mkfifo(path)
    check("not a regular file" in bench("report", path, status=1), "it is not refused")


def results_page():
    "docs/results.md is made of a run and of readings, and a stale one is told"
    folder = new_folder()
    os.mkdir(os.path.join(folder, "results"))
    with gzip.open(os.path.join(folder, "results", "run.json.gz"), "wt") as file:
        json.dump(document(), file)
    with open(os.path.join(folder, "results", "readings.md"), "w") as file:
        file.write("# Results\n\n## tx-some\n\nIt gains {{split, by the sender; deferred; gain}}.\n")
    tool = os.path.join(ROOT, "bench", "results")
    os.environ["VIRTWIRE"] = VIRTWIRE
    run(tool, folder)
    run(tool, "--check", folder)
    path = os.path.join(folder, "results.md")
    with open(path) as file:
        page = file.read()
    check("\nIt gains [+80.0%].\n" in page, f"the reading is not in the page: {page}")
    check("| split | by the sender | delayed → deferred | 5.28 | 9.50 | [+80.0%] | [50.0%] |\n" in page,
          f"the table is not in the page: {page}")
    with open(path, "a") as file:
        file.write("typed by hand\n")
    said = run("sh", "-c", f"'{tool}' --check '{folder}' || echo status $?")
    check("-typed by hand" in said and "status 1" in said, f"a stale page is not told: {said}")


run_tests(page, page_of_a_comparison, json_schema, metrics_are_documented, bad_command_lines,
          control_characters, fifo, results_page)
