#!/usr/bin/env python3
"""Tests the page of `winnow report` in a real browser: python3 tests/eval/report_page_test.py REPORT.html [FOLDER]

With FOLDER it leaves screenshots there. Skips itself without a browser, see ../browser/webdriver.py.
"""
import pathlib
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "browser"))
import webdriver  # noqa: E402

WIDTHS = (420, 800, 1280)

# Finds visible plots with a text outside the drawing, and plots that extend beyond the page.
CLIPPED = """
const clipped = [];
for (const svg of document.querySelectorAll('figure svg')) {
  if (!svg.checkVisibility()) continue;
  const [, , width, height] = svg.getAttribute('viewBox').split(' ').map(Number);
  const to_drawing = svg.getScreenCTM().inverse();
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBoundingClientRect();
    const a = new DOMPoint(box.left, box.top).matrixTransform(to_drawing);
    const b = new DOMPoint(box.right, box.bottom).matrixTransform(to_drawing);
    if (a.x < -0.5 || a.y < -0.5 || b.x > width + 0.5 || b.y > height + 0.5) {
      clipped.push(svg.getAttribute('aria-label') + ': ' + text.textContent);
    }
  }
  if (svg.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5) {
    clipped.push(svg.getAttribute('aria-label') + ' leaves the page');
  }
}
return clipped;
"""

# Returns the smallest text size of a plot in pixels of the screen.
SMALLEST_TEXT = """
let smallest = 100;
for (const text of document.querySelectorAll('figure svg text')) {
  if (!text.checkVisibility()) continue;
  smallest = Math.min(smallest, parseFloat(getComputedStyle(text).fontSize) *
                      Math.hypot(text.getScreenCTM().b, text.getScreenCTM().d));  // some are turned
}
return smallest;
"""

COLUMN = """
const table = document.querySelectorAll('table')[arguments[0]];
return [...table.tBodies[0].rows].map((row) => row.cells[arguments[1]].textContent);
"""


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = webdriver.Browser(1280, 900)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def open(self, width, scheme="light"):
        self.browser.log()  # what earlier tests left
        self.browser.show(width, 900, scheme)
        self.browser.open(PAGE.as_uri())
        return self.browser

    def assert_clean(self, browser):
        self.assertEqual([line for line in browser.log() if line["level"] in ("SEVERE", "WARNING")], [])
        self.assertEqual(browser.script("return performance.getEntriesByType('resource').map((entry) => entry.name)"), [])

    def test_nothing_is_clipped_on_any_screen(self):
        backgrounds = set()
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    browser = self.open(width, scheme)
                    self.assertLessEqual(browser.script("return document.documentElement.scrollWidth"), width)
                    self.assertGreater(browser.script("return document.querySelectorAll('figure svg').length"), 0)
                    self.assertEqual(browser.script(CLIPPED), [])
                    self.assertGreaterEqual(browser.script(SMALLEST_TEXT), 9)
                    backgrounds.add((scheme, browser.script("return getComputedStyle(document.body).backgroundColor")))
                    if len(sys.argv) > 2:
                        browser.shoot(f"{sys.argv[2]}/{width}-{scheme}.png")
                    self.assert_clean(browser)
        self.assertEqual(len(backgrounds), 2, backgrounds)

    def test_tables_are_sorted_by_a_click(self):
        browser = self.open(1280)
        table = browser.script("return [...document.querySelectorAll('table')].findIndex("
                               "(t) => t.tBodies[0].rows.length > 2 && t.tHead)")
        titles = browser.script("return [...document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells]"
                                ".map((cell) => cell.textContent)", table)
        for column, numbers in ((0, False), (len(titles) - 1, True)):
            button = f"document.querySelectorAll('table')[{table}].tHead.rows[0].cells[{column}].querySelector('button')"
            before = browser.script(COLUMN, table, column)
            for descending in (False, True):
                browser.script(f"{button}.click()")
                cells = browser.script(COLUMN, table, column)
                self.assertEqual(sorted(cells), sorted(before))
                keys = [float(cell.split()[0].rstrip("x%")) for cell in cells if cell != "-"] if numbers else cells
                self.assertEqual(keys, sorted(keys, reverse=descending), titles[column])
                self.assertEqual(browser.script(f"return {button}.closest('th').ariaSort"),
                                 "descending" if descending else "ascending")
        self.assert_clean(browser)

    def test_answers_can_be_browsed(self):
        browser = self.open(800)
        shown = "return document.querySelectorAll('.sample').length"
        self.assertGreater(browser.script(shown), 0)
        browser.script("const box = document.getElementById('text'); box.value = 'no answer has this text';"
                       "box.dispatchEvent(new Event('input'))")
        self.assertEqual(browser.script(shown), 0)
        self.assertEqual(browser.text("#count"), "0 samples")
        self.assert_clean(browser)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PAGE = pathlib.Path(sys.argv[1]).resolve()
    webdriver.require(needs_model=False)
    unittest.main(argv=sys.argv[:1], verbosity=2)
