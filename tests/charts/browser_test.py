#!/usr/bin/env python3
"""Opens a report in a headless browser and looks at it: python3 tests/charts/browser_test.py REPORT.html [SHOTS]

Skips itself (exit code 77) where neither chromium nor chromium-browser nor google-chrome is installed. Checks that no
script fails, that nothing is fetched, that the answers can be browsed, that the page is no wider than a phone, and that
light and dark differ. With SHOTS it leaves the screenshots in that folder.
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Runs inside the page after its own scripts; what it finds is put into the title, which --dump-dom shows.
PROBE = """<script>
addEventListener('load', () => {
  const text = id => (document.getElementById(id) || {}).textContent || '';
  const found = {
    errors: window.failures,
    width: document.documentElement.scrollWidth, window: innerWidth,
    charts: document.querySelectorAll('figure svg').length,
    tables: document.querySelectorAll('table').length,
    background: getComputedStyle(document.body).backgroundColor,
    count: text('count'), samples: document.querySelectorAll('.sample').length,
    loaded: performance.getEntriesByType('resource').map(e => e.name),
  };
  const box = document.getElementById('text');
  if (box) {
    box.value = 'no answer has this text';
    box.dispatchEvent(new Event('input'));
    found.filtered = text('count');
  }
  document.title = JSON.stringify(found);
});
</script>"""
CATCHER = "<script>window.failures=[];addEventListener('error',e=>window.failures.push(String(e.message)))</script>"


def run_browser(browser, page, flags):
    # Room for its profile: a browser of its own, so that none of the user's is touched.
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   f"--user-data-dir={profile}", "--virtual-time-budget=4000", *flags, page.as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if result.returncode != 0:
        sys.exit(f"{browser} failed with {result.returncode}: {result.stderr[-500:]}")
    return result.stdout


def probe(browser, page, flags=()):
    """What PROBE finds in the page."""
    source = page.read_text(encoding="utf-8")
    source = source.replace("<head>", "<head>" + CATCHER, 1).replace("</body>", PROBE + "</body>", 1)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "page.html"
        copy.write_text(source, encoding="utf-8")
        dom = run_browser(browser, copy, ["--dump-dom", *flags])
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom, re.S).group(1)))


def check(condition, message, found):
    if not condition:
        sys.exit(f"failed: {message}\n{json.dumps(found, indent=1)}")


def main():
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if browser is None:
        print("skipped: no chromium is installed")
        sys.exit(SKIPPED)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    page = pathlib.Path(sys.argv[1]).resolve()

    wide = probe(browser, page, ["--window-size=1280,900"])
    check(wide["errors"] == [], "the page's scripts fail", wide)
    check(wide["loaded"] == [], "the page fetches something", wide)
    check(wide["charts"] > 0 and wide["tables"] > 0, "there is no chart or no table", wide)
    if wide["count"]:
        check(wide["samples"] > 0, "no answer is shown", wide)
        check(wide["filtered"] == "0 samples", "the text box does not filter", wide)
    phone = probe(browser, page, ["--window-size=500,900"])  # the narrowest window that headless chromium makes
    check(phone["width"] <= phone["window"], "the page is wider than the screen", phone)
    dark = probe(browser, page, ["--blink-settings=preferredColorScheme=0"])
    check(dark["background"] != wide["background"], "dark looks like light", dark)

    if len(sys.argv) > 2:
        shots = pathlib.Path(sys.argv[2])
        os.makedirs(shots, exist_ok=True)
        for name, flags in (("light", ["--window-size=1280,6000"]), ("phone", ["--window-size=500,6000"]),
                            ("dark", ["--window-size=1280,6000", "--blink-settings=preferredColorScheme=0"])):
            run_browser(browser, page, [f"--screenshot={shots / name}.png", *flags])
    print(f"{wide['charts']} charts, {wide['tables']} tables, {wide['samples']} samples: good in {browser}")


if __name__ == "__main__":
    main()
