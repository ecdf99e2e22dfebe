#!/usr/bin/env python3
"""Opens the page of `winnow inspect` in a real browser and compares its values with --json.

usage: inspect_page_test.py WINNOW TEXT [TOKENS]     (default 1500; the page is measured at 4096)

Skips itself without a browser or the model (WINNOW_TEST_MODEL), see ../browser/webdriver.py.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "browser"))
import webdriver  # noqa: E402

MAX_BYTES = 5_000_000
MAX_OPEN_MS = 1000

# Scripts that return the two sides of the page and the rows of its summary.
SIDES = """const side = (id) => { const e = document.getElementById(id);
  return {kept: e.dataset.kept.split(' ').map(Number), read: e.querySelector('.read').textContent,
          doc: e.querySelector('.doc').textContent}; };
return {left: side('left'), right: side('right')};"""
ROWS = "return [...document.querySelectorAll('tr')].map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))"


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def load(browser, page, fragment=""):
    """Loads the page anew and returns the time that it took, in ms."""
    browser.open("about:blank")  # a change of the fragment alone does not load
    browser.open(f"file://{page}#{fragment}")
    return float(browser.wait("document.documentElement.dataset.loadMs", seconds=60))


def check_values(browser, page, values, text, n_tokens):
    token = n_tokens // 3
    for left, right in ((0, 2), (5, 3)):
        load(browser, page, f"left={left}&right={right}&token={token}")
        sides = browser.script(SIDES)
        for side, index in (("left", left), ("right", right)):
            kept = sides[side]["kept"]
            expected = [n for layer in values["cuts"][index]["layers"] for n in layer["kept"]]
            check(kept == expected, f"{side}: kept entries {kept[:6]}..., not {expected[:6]}...")
            read = re.match(rf"token {token}, .*: (\d+) of (\d+) heads hold it", sides[side]["read"], re.S)
            check(read and int(read[2]) == len(expected), f"{side}: what is said of the token: {sides[side]['read']}")
        check(sides["left"]["doc"] == sides["right"]["doc"] and sides["left"]["doc"].strip()[:40] in text,
              "the text is not the text")


def check_summary(browser, values):
    rows = [row for row in browser.script(ROWS) if len(row) == 12]
    check(len(rows) == len(values["cuts"]), f"{len(rows)} rows in the summary")
    for row, cut in zip(rows, values["cuts"]):
        check(row[:3] == [cut["method"], cut["budget"], str(cut["entries_kept"])], f"row {row}")
        for place, value, scale in ((4, cut["next"]["kl_mean"], 1), (5, cut["next"]["perplexity"], 1),
                                    (9, cut["oracle"]["loss"], 100), (11, cut["oracle"]["optimality_gap"], 100)):
            check(abs(float(row[place]) - value * scale) <= 0.006 * abs(value * scale) + 0.051 * (scale == 100),
                  f"{row[place]} in the summary, {value} in the report")


def main():
    tool, text = sys.argv[1:3]
    n_tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 1500
    webdriver.require(needs_model=True)
    with tempfile.TemporaryDirectory() as folder:
        page, report = f"{folder}/page.html", f"{folder}/report.json"
        subprocess.run([tool, "inspect", "-m", os.environ["WINNOW_TEST_MODEL"], "-t", "1", "-f", text, "--tokens",
                        str(n_tokens), "-n", "32", "--methods", "snapkv,ada-snapkv,cake", "--budgets", "10%,30%", "-o", page,
                        "--json", report], check=True, stderr=subprocess.DEVNULL, timeout=300)
        values = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
        html = pathlib.Path(page).read_text(encoding="utf-8")
        check(len(html.encode()) < MAX_BYTES, f"the page has {len(html)} bytes")
        check(not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(", html), "the page names something elsewhere")

        with webdriver.Browser(1280, 900) as browser:
            check_values(browser, page, values, pathlib.Path(text).read_text(encoding="utf-8"), n_tokens)
            check_summary(browser, values)
            # A busy machine may be slow for a while, so the best of many counts.
            times = [load(browser, page)]
            while min(times) >= MAX_OPEN_MS and len(times) < 30:
                times.append(load(browser, page))
            check(min(times) < MAX_OPEN_MS, f"the page took {min(times)} ms to open, at best of {len(times)}")
            check(browser.log() == [], f"the page's script complains: {browser.log()}")
            for scheme in ("light", "dark"):
                browser.show(420, 800, scheme)
                load(browser, page)
                width = browser.script("return document.documentElement.scrollWidth")
                check(width <= 420, f"the page is {width} pixels wide on a screen of 420, {scheme}")
        print(f"passed: {len(html) / 1e6:.2f} MB, open in {min(times):.0f} ms")


if __name__ == "__main__":
    main()
