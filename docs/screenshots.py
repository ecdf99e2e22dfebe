#!/usr/bin/env python3
"""Takes the documentation's pictures of the page of `winnow serve`, in Chromium: a question about the demo's document.

usage: docs/screenshots.py [WINNOW [MODEL]]      build/bin/winnow, and Qwen2.5-Coder-1.5B-Instruct (make model MODEL=...)

Writes docs/images/page.png and page-phone.png (dark). Run it after a change of the page; look at them.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "bench/server"), str(ROOT / "tests/browser")]
import webdriver  # noqa: E402
from server_process import Server  # noqa: E402

# Name, width, height, colour scheme, and whether the drawer with the map of the cache is open.
PICTURES = [("page", 1200, 800, "light", True), ("page-phone", 360, 740, "dark", False)]
TOOL = ROOT / "build/bin/winnow"
MODEL = ROOT / "models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SETTINGS = {"document": (ROOT / "demo/document.txt").read_text(encoding="utf-8"), "method": "auto", "budget": "5%bytes",
            "most": "120", "heat": "0"}
QUESTION = (ROOT / "demo/question.txt").read_text(encoding="utf-8").strip()


def take(server, name, width, height, scheme, has_drawer):
    with webdriver.Browser(width, height, scheme) as browser:
        browser.open(f"http://localhost:{server.port}/")
        browser.wait("document.getElementById('method').options.length > 3")
        for field, value in SETTINGS.items():
            browser.fill(field, value)
        browser.wait("/tokens$/.test(document.getElementById('size').textContent)")
        browser.script("document.getElementById('message').focus()")
        browser.keys(*QUESTION, "\ue007")
        browser.wait("document.querySelectorAll('.turn').length === 2 && !document.getElementById('send').disabled", seconds=300)
        if has_drawer and not browser.of(browser.find("#drawer")[0], "displayed"):
            browser.click("#drawer-toggle")
        browser.shoot(str(ROOT / f"docs/images/{name}.png"))
        print(f"docs/images/{name}.png")


def main():
    tool, model = (sys.argv[1:] + [TOOL, MODEL][len(sys.argv) - 1:])[:2]
    webdriver.require(needs_model=False)
    server = Server(str(tool), "-m", str(model), "-c", "8192")
    try:
        for picture in PICTURES:
            take(server, *picture)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
