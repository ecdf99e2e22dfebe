"""A browser by the WebDriver protocol, using chromedriver and chromium with only the standard library."""
import base64
import http.client
import json
import os
import shutil
import subprocess
import sys
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of element references in WebDriver


def skip(reason):
    """Ends a test that lacks a prerequisite, as skipped, or as failed if WINNOW_REQUIRE_BROWSER is set (in CI)."""
    if os.environ.get("WINNOW_REQUIRE_BROWSER"):
        sys.exit(f"failed: {reason}, and WINNOW_REQUIRE_BROWSER is set")
    print("skipped: " + reason)
    sys.exit(0)


def require(needs_model):
    """Skips the test if there is no browser, or no model although one is needed."""
    for name in ("chromium", "chromedriver"):
        if not shutil.which(name):
            skip(f"there is no {name} (Debian's packages: chromium chromium-driver)")
    if needs_model and not os.path.isfile(os.environ.get("WINNOW_TEST_MODEL", "")):
        skip("WINNOW_TEST_MODEL names no model")


class Browser:
    def __init__(self, width, height, scheme="light"):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        self.port = next(int(line.split()[-1].rstrip(".")) for line in self.driver.stdout if "successfully on port" in line)
        self.session = ""
        try:
            self._begin(width, height, scheme)
        except BaseException:
            self._stop_driver()
            raise

    def _begin(self, width, height, scheme):
        wanted = {"goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": shutil.which("chromium"),
                                         "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                                  # Pages may only reach this machine.
                                                  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
                                                  f"--window-size={width},{height}"]},
                  "timeouts": {"pageLoad": 60000, "script": 60000}}
        self.session = "/session/" + self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self.show(width, height, scheme)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", self.session)
        finally:
            self._stop_driver()

    def _stop_driver(self):
        self.driver.terminate()
        self.driver.wait(30)
        self.driver.stdout.close()

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(value["error"] + ": " + value["message"].split("\n")[0])
        return value

    def cdp(self, command, **parameters):
        return self._call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, width, height, scheme="light"):
        """Sets the size of the screen, in pixels, and the preferred colours."""
        # Windows have a minimum width; the emulated screen has none.
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self._call("POST", self.session + "/url", {"url": url})

    def forget(self, origin):
        """Leaves the page, and forgets what it stored and logged: the next is opened as in a new browser, which takes
        seconds to start."""
        self.open("about:blank")
        self.cdp("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.log()

    def script(self, text, *arguments):
        """Runs the script and returns the value of its `return`; arguments are arguments[0], ..."""
        return self._call("POST", self.session + "/execute/sync", {"script": text, "args": list(arguments)})

    def find(self, selector):
        """Returns references to all elements that match."""
        return self._call("POST", self.session + "/elements", {"using": "css selector", "value": selector})

    def of(self, element, what):
        """Returns "text", "computedlabel", "computedrole", ... of an element."""
        return self._call("GET", f"{self.session}/element/{element[ELEMENT]}/{what}")

    def click(self, selector):
        self._call("POST", f"{self.session}/element/{self.find(selector)[0][ELEMENT]}/click", {})

    def fill(self, name, value):
        """Gives the field with this id a value, as if it was typed or chosen."""
        self.script("const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                    "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'))", name, value)

    def text(self, selector):
        return self.of(self.find(selector)[0], "text")

    def keys(self, *keys, held=None):
        """Presses keys like a user, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        if held:
            actions = [{"type": "keyDown", "value": held}, *actions, {"type": "keyUp", "value": held}]
        self._call("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def wait(self, text, seconds=120):
        """Waits until the script's expression is true, and returns its value."""
        end = time.time() + seconds
        while time.time() < end:
            if value := self.script("return " + text):
                return value
            time.sleep(0.1)
        raise RuntimeError("this did not become true: " + text)

    def log(self):
        return self._call("POST", self.session + "/se/log", {"type": "browser"})

    def shoot(self, path):
        """Writes a screenshot of the whole page."""
        size = self.script("const d = document.documentElement; return [d.clientWidth, d.scrollHeight]")
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
