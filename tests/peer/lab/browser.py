# SPDX-License-Identifier: BSD-3-Clause
"""Debian's Chromium without a window, spoken to through a pair of pipes (the DevTools protocol)."""
import base64
import json
import os
import select
import tempfile

from lab.process import Countdown, Deadline, Failure, Process, RESOURCES

# It asks nobody for anything: the page is a file, and the namespace has no network anyway.
COMMAND = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
           "--no-first-run", "--disable-background-networking", "--disable-component-update",
           "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
           "--remote-debugging-pipe", "about:blank"]
ERRORS = {"error", "warning", "assert"}


class Browser:
    """One page, and all that its console said."""

    def __init__(self, private_folder, log_folder):
        profile = tempfile.mkdtemp(dir=private_folder)
        their_end, self.commands = os.pipe()
        self.answers, their_other_end = os.pipe()
        # It takes descriptors 3 and 4, which this program may have in use: a shell moves them.
        script = f'exec "$@" 3<&{their_end} 4>&{their_other_end}'
        self.process = Process("chromium", ["sh", "-c", script, "sh", COMMAND[0],
                                            f"--user-data-dir={profile}", *COMMAND[1:]],
                               log_folder, pass_fds=(their_end, their_other_end),
                               environment={"HOME": profile, "XDG_CONFIG_HOME": profile,
                                            "XDG_CACHE_HOME": profile})
        os.close(their_end)
        os.close(their_other_end)
        RESOURCES.add(self)
        self.name = "browser"
        self.received = b""
        self.count = 0
        self.complaints = []
        self.loaded = False
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in target if one["type"] == "page")
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(domain + ".enable")

    def close(self):
        os.close(self.commands)
        os.close(self.answers)

    def read(self):
        """The next message."""
        countdown = Countdown()
        while b"\0" not in self.received:
            if select.select([self.answers], [], [], 0.5)[0]:
                some = os.read(self.answers, 1 << 20)
                if not some:
                    raise Failure("the browser ended\n" + RESOURCES.log_tails())
                self.received += some
            elif countdown.over():
                raise Deadline("the browser does not answer\n" + RESOURCES.log_tails())
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        """What the page did by itself."""
        method, detail = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Log.entryAdded" and detail["entry"]["level"] in ERRORS:
            self.complaints.append(detail["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and detail["type"] in ERRORS:
            self.complaints.append(str(detail["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(detail["exceptionDetails"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(detail["request"]["url"])

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if getattr(self, "session", None) is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self.count:
            self.note(answer)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width=1200, height=1600):
        """Opens the page, and waits until it is there."""
        self.loaded, self.complaints, self.requests = False, [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url="file://" + path)
        while not self.loaded:
            self.note(self.read())

    def evaluate(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failure(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def media(self, medium="", scheme="light"):
        self.call("Emulation.setEmulatedMedia", media=medium,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def pdf(self, path):
        printed = self.call("Page.printToPDF", preferCSSPageSize=False, printBackground=False)
        with open(path, "wb") as file:
            file.write(base64.b64decode(printed["data"]))
