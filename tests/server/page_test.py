#!/usr/bin/env python3
"""The server's page in a real browser: chat, a long document, the map of what is kept; keyboard, names, contrast, phones.

usage: page_test.py WINNOW [FOLDER]      with FOLDER screenshots are left there

Skips itself without a browser or the model (WINNOW_TEST_MODEL), see ../browser/webdriver.py.
"""
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "bench" / "server"), str(ROOT / "tests" / "browser")]
import webdriver  # noqa: E402
from server_process import Server  # noqa: E402

DOCUMENT = ROOT / "tests" / "data" / "hound-of-the-baskervilles.txt"
ENTER, SHIFT, TAB = "\ue007", "\ue008", "\ue004"

# Of every element with text: the contrast between it and the nearest background. 4.5 is WCAG's AA.
LOW_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function rgba(colour) { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                        return [...canvas.getImageData(0, 0, 1, 1).data]; }
function light(colour) {
  const [r, g, b] = colour.map((n) => (n /= 255) <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const low = [];
for (const element of document.querySelectorAll('body *')) {
  const has_text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if ((!has_text && !element.value) || !element.checkVisibility() || element.matches('script, option, .hidden, .skip, :disabled')) continue;
  let back = element;
  while (back && rgba(getComputedStyle(back).backgroundColor)[3] === 0) back = back.parentElement;
  const a = light(rgba(getComputedStyle(element).color)), b = light(rgba(getComputedStyle(back ?? document.body).backgroundColor));
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) low.push(element.tagName + ' ' + (element.id || element.textContent.slice(0, 20)) + ' ' + contrast.toFixed(2));
}
return low;
"""


def start_server(*flags):
    return Server(sys.argv[1], "-m", os.environ["WINNOW_TEST_MODEL"], "-t", "1", "-c", "4096", *flags)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_server()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.events

    def open(self, width=1280, height=900, scheme="light", server=None):
        browser = webdriver.Browser(width, height, scheme)
        self.addCleanup(browser.__exit__)
        browser.open(f"http://localhost:{(server or self.server).port}/")
        return browser

    def ready(self, browser):
        browser.wait("document.getElementById('method').options.length > 3")
        return browser

    def set(self, browser, name, value):
        browser.script("const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                       "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'))", name, value)

    def ask(self, browser, text):
        """Types it and presses Enter; the answer's text."""
        n = browser.script("return document.querySelectorAll('.turn').length")
        browser.script("document.getElementById('message').focus()")
        browser.keys(*text, ENTER)
        browser.wait(f"document.querySelectorAll('.turn').length === {n + 2} && !document.getElementById('send').disabled")
        return browser.script("return [...document.querySelectorAll('.turn.assistant span')].at(-1).textContent")

    def rows(self, browser):
        """Of the list beside the map: {name: value}."""
        return browser.script("const l = document.querySelector('#answer-cache dl'); return Object.fromEntries("
                              "[...l.querySelectorAll('dt')].map((t) => [t.textContent, t.nextSibling.textContent]))")

    def shoot(self, browser, name):
        if len(sys.argv) > 2:
            browser.shoot(f"{sys.argv[2]}/{name}.png")

    def assert_clean(self, browser):
        self.assertEqual([line for line in browser.log() if line["level"] in ("SEVERE", "WARNING")], [])

    def converse(self, browser):
        """A document, a method, two questions."""
        self.set(browser, "document", DOCUMENT.read_text()[:5000])
        self.set(browser, "method", "lava")
        self.set(browser, "budget", "30%")
        self.set(browser, "most", "12")
        self.set(browser, "heat", "0")
        browser.wait("/^1,[0-9]{3} tokens$/.test(document.getElementById('size').textContent)")
        return self.ask(browser, "Who is Dr. Mortimer?"), self.rows(browser)

    def test_chat_about_a_document(self):
        browser = self.ready(self.open())
        answer, rows = self.converse(browser)
        self.assertTrue(answer.strip())
        self.assertEqual(rows["method"], "lava, 30%")
        kept, full = (int(n.replace(",", "")) for n in rows["entries kept"].split(" of "))
        self.assertAlmostEqual(kept / full, 0.3, delta=0.03)
        cells = browser.script("return [...document.querySelectorAll('#map tbody tr')].map("
                               "(row) => [...row.cells].slice(1).map((cell) => Number(cell.textContent)))")
        self.assertEqual((len(cells), len(cells[0])), (30, 3))
        self.assertLessEqual(abs(sum(map(sum, cells)) - kept), 90 * 12)  # the answer's own entries come on top
        self.assertGreater(len(set(map(tuple, cells))), 15)  # lava gives layers and heads different numbers
        self.ask(browser, "Where is the moor?")
        self.assertGreater(int(self.rows(browser)["read before"].split()[0].replace(",", "")), 1000)
        self.shoot(browser, "desktop")
        self.assert_clean(browser)

    def test_nothing_comes_from_elsewhere(self):
        browser = self.ready(self.open())
        names = browser.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertTrue(names)
        self.assertEqual([name for name in names if not name.startswith(f"http://localhost:{self.server.port}/")], [])

    def test_stop_and_start_again(self):
        browser = self.ready(self.open())
        self.set(browser, "most", "3000")
        for _ in range(5):  # an answer may have ended by itself before it is stopped
            browser.script("document.getElementById('message').focus()")
            browser.keys(*"Count to one thousand, in words.", ENTER)
            browser.wait("document.querySelector('.turn.assistant span')?.textContent.length > 0")
            browser.script("document.getElementById('stop').click()")
            browser.wait("!document.getElementById('send').disabled")
            if browser.text(".turn.assistant small") == "stopped":
                break
            browser.click("#clear")
        self.assertEqual(browser.text(".turn.assistant small"), "stopped")
        browser.click("#clear")
        self.assertEqual(browser.script("return document.querySelectorAll('.turn').length"), 0)
        self.assertTrue(browser.script("return document.activeElement.id === 'message' && !document.getElementById('hint').hidden"))
        self.assert_clean(browser)

    def test_an_error_is_told_and_the_question_is_not_lost(self):
        browser = self.ready(self.open())
        self.set(browser, "method", "snapkv")
        self.set(browser, "budget", "much")
        browser.script("document.getElementById('message').focus()")
        browser.keys(*"Hello", ENTER)
        browser.wait("document.getElementById('problem').textContent")
        self.assertIn("much", browser.text("#problem"))
        self.assertEqual(browser.of(browser.find("#problem")[0], "computedrole"), "alert")
        self.assertEqual(browser.script("return document.getElementById('message').value"), "Hello")
        self.assertEqual(browser.script("return document.querySelectorAll('.turn').length"), 0)

    def test_text_is_not_markup(self):
        browser = self.ready(self.open())
        self.set(browser, "most", "1")
        self.ask(browser, "<img src=x onerror=document.title='owned'>")
        self.assertEqual(browser.script("return document.title + document.querySelectorAll('.turn img').length"), "winnow0")

    def test_key(self):
        server = start_server("--api-key", "open sesame")
        self.addCleanup(server.stop)
        browser = self.open(server=server)
        browser.wait("document.getElementById('problem').textContent && document.getElementById('access').open")
        browser.script("document.getElementById('key').focus()")
        browser.keys(*"open sesame", ENTER)
        self.ready(browser)
        self.assertEqual(browser.text("#problem"), "")

    def test_keyboard_and_names(self):
        browser = self.ready(self.open())
        for element in browser.find("button, input, select, textarea, summary, [tabindex]"):
            if browser.of(element, "displayed"):
                self.assertTrue(browser.of(element, "computedlabel").strip(), browser.of(element, "property/outerHTML"))
        visited = []
        for _ in range(25):
            browser.keys(TAB)
            visited.append(browser.script("const e = document.activeElement; return e.id || e.className || e.tagName"))
        self.assertEqual(visited[0], "skip")
        for name in ("message", "send", "document", "file", "method", "most", "heat", "aware"):
            self.assertIn(name, visited)
        browser.script("document.getElementById('message').focus()")
        browser.keys("a", held=None)
        browser.keys(ENTER, held=SHIFT)
        browser.keys("b")
        self.assertEqual(browser.script("return document.getElementById('message').value"), "a\nb")

    def test_phone_and_dark(self):
        for name, width, scheme in (("phone", 360, "light"), ("phone-dark", 360, "dark"), ("dark", 1280, "dark"),
                                    ("light", 1280, "light")):
            with self.subTest(name), webdriver.Browser(width, 800, scheme) as browser:
                browser.open(f"http://localhost:{self.server.port}/")
                self.ready(browser)
                self.converse(browser)
                self.assertLessEqual(browser.script("return document.documentElement.scrollWidth"), width)
                self.assertEqual(browser.script(LOW_CONTRAST), [])
                self.assertTrue(browser.script("document.getElementById('model').style.color = '#777';" + LOW_CONTRAST))
                browser.script("document.getElementById('model').style.color = ''")
                dark = browser.script("return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0] < 100")
                self.assertEqual(dark, scheme == "dark")
                self.shoot(browser, name)


if __name__ == "__main__":
    webdriver.require(needs_model=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
