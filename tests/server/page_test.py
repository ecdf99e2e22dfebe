#!/usr/bin/env python3
"""Tests the server's page in a real browser: chat, a long document, the cache map, keyboard, labels, contrast, phones.

usage: page_test.py WINNOW [FOLDER]      with FOLDER it leaves screenshots there

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

# Finds elements with text whose contrast with the nearest background is below 4.5, WCAG's AA.
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
        cls.browser = webdriver.Browser(1280, 900)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        assert cls.server.stop() == 0, cls.server.events

    def open(self, width=1280, height=900, scheme="light", server=None):
        """Opens the page as for the first time."""
        origin = f"http://localhost:{(server or self.server).port}"
        self.browser.forget(origin)
        self.browser.show(width, height, scheme)
        self.browser.open(origin + "/")
        return self.browser

    def ready(self, browser):
        browser.wait("document.getElementById('method').options.length > 3")
        return browser

    def ask(self, browser, text):
        """Types the text, presses Enter and returns the answer's text."""
        n = browser.script("return document.querySelectorAll('.turn').length")
        browser.script("document.getElementById('message').focus()")
        browser.keys(*text, ENTER)
        browser.wait(f"document.querySelectorAll('.turn').length === {n + 2} && !document.getElementById('send').disabled")
        return browser.script("return [...document.querySelectorAll('.turn.assistant .body')].at(-1).textContent")

    def rows(self, browser):
        """Returns the list next to the map as {name: value}."""
        return browser.script("const l = document.querySelector('#answer-cache dl'); return Object.fromEntries("
                              "[...l.querySelectorAll('dt')].map((t) => [t.textContent, t.nextSibling.textContent]))")

    def shoot(self, browser, name):
        if len(sys.argv) > 2:
            browser.shoot(f"{sys.argv[2]}/{name}.png")

    def assert_clean(self, browser):
        self.assertEqual([line for line in browser.log() if line["level"] in ("SEVERE", "WARNING")], [])

    def converse(self, browser):
        """Sets a document and a method, and returns the answer to a question and the rows of its list."""
        browser.fill("document", DOCUMENT.read_text()[:5000])
        browser.fill("method", "lava")
        browser.fill("budget", "30%")
        browser.fill("most", "12")
        browser.fill("heat", "0")
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
        self.assertLessEqual(abs(sum(map(sum, cells)) - kept), 90 * 12)  # the answer's own entries are added
        self.assertGreater(len(set(map(tuple, cells))), 15)  # lava gives layers and heads different numbers
        self.ask(browser, "Where is the moor?")
        self.assertGreater(int(self.rows(browser)["not read again"].split()[0].replace(",", "")), 1000)
        self.shoot(browser, "desktop")
        self.assert_clean(browser)

    def test_nothing_comes_from_elsewhere(self):
        browser = self.ready(self.open())
        names = browser.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertTrue(names)
        self.assertEqual([name for name in names if not name.startswith(f"http://localhost:{self.server.port}/")], [])

    def test_stop_and_start_again(self):
        browser = self.ready(self.open())
        browser.fill("most", "3000")
        for _ in range(5):  # an answer may end by itself before it is stopped
            browser.script("document.getElementById('message').focus()")
            browser.keys(*"Count to one thousand, in words.", ENTER)
            browser.wait("document.querySelector('.turn.assistant .body')?.textContent.length > 0")
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
        browser.fill("method", "snapkv")
        browser.fill("budget", "much")
        browser.script("document.getElementById('message').focus()")
        browser.keys(*"Hello", ENTER)
        browser.wait("document.getElementById('problem').textContent")
        self.assertIn("much", browser.text("#problem"))
        self.assertEqual(browser.of(browser.find("#problem")[0], "computedrole"), "alert")
        self.assertEqual(browser.script("return document.getElementById('message').value"), "Hello")
        self.assertEqual(browser.script("return document.querySelectorAll('.turn').length"), 0)

    def test_text_is_not_markup(self):
        browser = self.ready(self.open())
        browser.fill("most", "1")
        self.ask(browser, "<img src=x onerror=document.title='owned'>")
        self.assertEqual(browser.script("return document.title + document.querySelectorAll('.turn img').length"), "winnow0")

    def test_an_empty_answer_is_one(self):
        """A model may end its turn at once, which a random draw does now and then."""
        browser = self.ready(self.open())
        browser.script("const ask = post; post = async (path, ...rest) => path !== '/v1/chat/completions' ? ask(path, ...rest) : "
                       "new Response('data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\\n\\ndata: [DONE]\\n\\n')")
        self.assertEqual(self.ask(browser, "Say nothing."), "")
        self.assertIn("The answer is empty.", browser.text(".turn.assistant small"))
        self.assertEqual(browser.script("return document.getElementById('message').value"), "")
        browser.wait("document.querySelectorAll('#conversations li').length === 1")
        self.assert_clean(browser)

    def test_conversations_stay_in_the_browser(self):
        browser = self.ready(self.open())
        browser.fill("most", "6")
        browser.fill("system", "You answer in one word.")
        first = self.ask(browser, "What is the capital of Japan?")
        browser.click("#clear")
        self.assertEqual(browser.script("return document.querySelectorAll('.turn').length"), 0)
        self.ask(browser, "And of Spain?")
        browser.wait("document.querySelectorAll('#conversations li').length === 2")
        browser.open(f"http://localhost:{self.server.port}/")  # like after a restart
        self.ready(browser)
        browser.wait("document.querySelectorAll('#conversations li').length === 2")
        titles = browser.script("return [...document.querySelectorAll('#conversations button:first-child')].map((b) => b.textContent)")
        self.assertEqual(titles, ["And of Spain?", "What is the capital of Japan?"])  # newest first
        browser.script("[...document.querySelectorAll('#conversations button:first-child')].at(-1).click()")
        browser.wait("document.querySelectorAll('.turn').length === 2")
        self.assertEqual(browser.text(".turn.assistant .body"), first)
        self.assertEqual(browser.script("return document.getElementById('system').value"), "You answer in one word.")
        self.assertIn("memory", self.rows(browser))
        # The conversation continues without reading the earlier turns again.
        self.ask(browser, "Why?")
        rows = self.rows(browser)
        reused, read = (int(rows[name].split()[0].replace(",", "")) for name in ("not read again", "read"))
        self.assertGreater(reused, read)
        browser.script("document.querySelector('#conversations button[aria-label^=Remove]').click()")
        browser.wait("document.querySelectorAll('#conversations li').length === 1")
        self.assert_clean(browser)

    def test_edit_and_try_again(self):
        browser = self.ready(self.open())
        browser.fill("most", "5")
        browser.fill("heat", "0")
        first = self.ask(browser, "Name a colour.")
        self.ask(browser, "Another one.")
        def wait_for_turns(n):
            browser.wait(f"document.querySelectorAll('.turn').length === {n} && !document.getElementById('send').disabled")
        browser.script("document.querySelector('.turn.assistant [aria-label^=Try]').click()")
        wait_for_turns(2)
        self.assertEqual(browser.text(".turn.assistant .body"), first)  # the same answer, since sampling is greedy
        self.assertRegex(self.rows(browser)["read"], "^0 tokens")
        browser.script("document.getElementById('message').focus()")
        browser.keys("\ue013")  # the arrow up
        self.assertEqual(browser.script("return document.getElementById('message').value"), "Name a colour.")
        self.assertEqual(browser.script("return document.querySelectorAll('.turn').length"), 0)
        browser.keys(*" Now!", ENTER)
        wait_for_turns(2)
        self.assertEqual(browser.text(".turn.user .body"), "Name a colour. Now!")
        self.assertGreater(int(self.rows(browser)["not read again"].split()[0]), 3)
        self.shoot(browser, "edited")
        self.assert_clean(browser)

    def test_markdown(self):
        """Tests the HTML for texts, and that it grows block by block."""
        browser = self.ready(self.open())
        def shown(text):
            return browser.script("const place = document.createElement('div'); showMarkdown(place, arguments[0]); return place.innerHTML", text)
        self.assertEqual(shown("# One *two*"), "<h3>One <em>two</em></h3>")
        self.assertEqual(shown("a **b** `c < d`\n\ne"), "<p>a <strong>b</strong> <code>c &lt; d</code></p><p>e</p>")
        self.assertEqual(shown("- a\n  - b\n- c"), "<div><ul><li>a<ul><li>b</li></ul></li><li>c</li></ul></div>")
        self.assertEqual(shown("3. a\n4. b"), '<div><ol start="3"><li>a</li><li>b</li></ol></div>')
        self.assertIn("<td>2</td>", shown("| a | b |\n|---|---|\n| 1 | 2 |"))
        self.assertEqual(shown("> quoted"), "<blockquote>quoted</blockquote>")
        code = shown("```python\nif a < b:\n\n    pass\n```\nafter")
        self.assertIn("<span>python</span>", code)
        self.assertIn("<code>if a &lt; b:\n\n    pass</code>", code)
        self.assertTrue(code.endswith("<p>after</p>"))
        for hostile in ("<script>document.title='owned'</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))",
                        "[a](https://example.org\" onclick=alert)", "**" * 5000, "`" * 5000, "*a " * 5000, "[" * 5000):
            self.assertEqual(browser.script(
                "const place = document.createElement('div'); showMarkdown(place, arguments[0]);"
                "return place.querySelectorAll('script, img, [onclick], a:not([href^=http])').length", hostile), 0)
        link = shown("[winnow](https://example.org/a?b=c)")
        self.assertIn('href="https://example.org/a?b=c"', link)
        self.assertIn('rel="noopener noreferrer"', link)
        # When an answer grows, the earlier blocks keep their elements.
        self.assertTrue(browser.script(
            "const place = document.createElement('div'); showMarkdown(place, 'one\\n\\n```\\ncode'); const [a, b] = place.children;"
            "showMarkdown(place, 'one\\n\\n```\\ncode\\n```\\nthree'); "
            "return place.children.length === 3 && place.children[0] === a && place.children[1] !== b"))
        browser.script("const turn = {role: 'assistant', content: arguments[0], thinking: 'First this, then that.'};"
                       "conversation.turns = [{role: 'user', content: 'Show me'}, turn]; showConversation()",
                       "## A list\n1. **One**\n2. Two\n\n```c++\nint main() { return 0; }\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |")
        self.assertFalse(browser.script("return document.querySelector('.thinking').open"))
        self.assertEqual(browser.script("return document.querySelector('.thinking div').textContent"), "First this, then that.")
        self.assertEqual(browser.script(LOW_CONTRAST), [])
        self.shoot(browser, "markdown")

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
        def visit():
            visited = []
            browser.script("document.activeElement.blur(); getSelection().removeAllRanges()")
            for _ in range(36):
                browser.keys(TAB)
                visited.append(browser.script("const e = document.activeElement; return e.id || e.className || e.tagName"))
            return visited
        visited = visit()
        self.assertEqual(visited[0], "skip")
        for name in ("list-toggle", "drawer-toggle", "clear", "message", "send", "add-document"):
            self.assertIn(name, visited)
        self.assertNotIn("document", visited)  # it is in a closed drawer
        browser.click("#drawer-toggle")
        for element in browser.find("button, input, select, textarea, summary, [tabindex]"):
            if browser.of(element, "displayed"):
                self.assertTrue(browser.of(element, "computedlabel").strip(), browser.of(element, "property/outerHTML"))
        visited = visit()
        for name in ("document", "file", "method", "reuse", "aware", "system", "most", "heat"):
            self.assertIn(name, visited)
        browser.script("document.getElementById('message').focus()")
        browser.keys("a", held=None)
        browser.keys(ENTER, held=SHIFT)
        browser.keys("b")
        self.assertEqual(browser.script("return document.getElementById('message').value"), "a\nb")

    def box(self, browser, selector):
        """Returns the element's place in the window: left, top, right, bottom."""
        return browser.script("const r = document.querySelector(arguments[0]).getBoundingClientRect();"
                              "return [r.left, r.top, r.right, r.bottom]", selector)

    def test_the_chat_fills_the_window(self):
        for width, height in ((1200, 800), (1000, 600), (360, 640)):
            with self.subTest(width=width):
                browser = self.ready(self.open(width, height))
                inner = browser.script("return [innerWidth, innerHeight]")
                is_phone = width == 360

                def assert_in_sight(selector):
                    left, top, right, bottom = self.box(browser, selector)
                    self.assertTrue(0 <= left < right <= inner[0] and 0 <= top < bottom <= inner[1], (selector, left, top, right, bottom))

                def assert_window_does_not_scroll():
                    self.assertEqual(browser.script("const e = document.scrollingElement; return [e.scrollWidth, e.scrollHeight]"), inner)

                browser.fill("most", "4")
                for i in range(4):  # a conversation higher than the window scrolls in its own column
                    self.ask(browser, f"Tell me of {i}. " + "Please. " * 60)
                assert_window_does_not_scroll()
                self.assertLess(browser.script("const e = document.getElementById('talk'); return e.scrollHeight - e.scrollTop - e.clientHeight"), 2)
                for selector in ("#message", "#send", "#add-document", "#drawer-toggle"):
                    assert_in_sight(selector)
                self.assertFalse(browser.of(browser.find("#drawer")[0], "displayed"))
                self.assertEqual(browser.of(browser.find("#list")[0], "displayed"), not is_phone)
                chat = self.box(browser, "#chat")
                self.assertGreater(chat[2] - chat[0], 0.95 * inner[0] if is_phone else inner[0] - 240)

                browser.click("#drawer-toggle")
                self.assertEqual(browser.script("return document.getElementById('drawer-toggle').ariaExpanded"), "true")
                assert_in_sight("#drawer")
                if width == 1200:  # next to the chat
                    self.assertLessEqual(self.box(browser, "#chat")[2], self.box(browser, "#drawer")[0])
                else:  # over the chat, until Esc
                    browser.keys("\ue00c")
                    self.assertFalse(browser.of(browser.find("#drawer")[0], "displayed"))
                if is_phone:
                    browser.click("#list-toggle")
                    assert_in_sight("#conversations")
                    browser.click("#drawer-toggle")
                    self.assertFalse(browser.of(browser.find("#list")[0], "displayed"))
                    browser.click("#drawer-toggle")
                browser.click("#add-document")
                self.assertTrue(browser.script("return document.activeElement.id === 'document'"))
                assert_in_sight("#document")
                assert_window_does_not_scroll()
                self.shoot(browser, f"window-{width}")
                self.assert_clean(browser)

    def test_phone_and_dark(self):
        for name, width, scheme in (("phone", 360, "light"), ("phone-dark", 360, "dark"), ("dark", 1280, "dark"),
                                    ("light", 1280, "light")):
            with self.subTest(name):
                browser = self.ready(self.open(width, 800, scheme))
                self.converse(browser)
                self.shoot(browser, name)
                for panel in (None, "#list", "#drawer"):
                    if panel and not browser.of(browser.find(panel)[0], "displayed"):
                        browser.click(panel + "-toggle")
                    self.assertLessEqual(browser.script("return document.documentElement.scrollWidth"), width)
                    self.assertEqual(browser.script(LOW_CONTRAST), [])
                self.assertTrue(browser.script("document.getElementById('model').style.color = '#777';" + LOW_CONTRAST))
                browser.script("document.getElementById('model').style.color = ''")
                dark = browser.script("return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0] < 100")
                self.assertEqual(dark, scheme == "dark")
                self.shoot(browser, name + "-drawer")


if __name__ == "__main__":
    webdriver.require(needs_model=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
