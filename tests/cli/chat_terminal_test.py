#!/usr/bin/env python3
"""winnow chat on a terminal: editing, history, Ctrl-C and Ctrl-D, and a document that is read at the start.

  chat_terminal_test.py build/bin/winnow

Skips itself without the model of WINNOW_TEST_MODEL and in a build without line editing.
"""
import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

TOOL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/bin/winnow"
MODEL = os.environ.get("WINNOW_TEST_MODEL", "")
PATIENCE = 120  # seconds; a busy machine must not make a test fail
UP, LEFT, HOME, BACKSPACE, CTRL_C, CTRL_D = "\x1b[A", "\x1b[D", "\x1b[H", "\x7f", "\x03", "\x04"
DOCUMENT = "The harbour master keeps the key of the lighthouse in a blue tin. " * 20


class Terminal:
    """A chat in a pseudo-terminal of 80 columns."""

    def __init__(self, *flags, **environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
            os.execv(TOOL, [TOOL, "chat", "-m", MODEL, "-t", "1", "--temp", "0", *flags])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = ""  # output since the last expect
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def read(self, seconds):
        if not select.select([self.terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.terminal, 4096)
        except OSError:  # the other end is closed
            data = b""
        self.seen += data.decode("utf-8", errors="replace")
        return bool(data)

    def expect(self, pattern):
        """Waits for the pattern, and returns and forgets the output up to its end."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
                return before
            if time.monotonic() > end or not self.read(1):
                raise AssertionError(f"{pattern!r} did not come after {self.seen!r}")

    def send(self, text):
        os.write(self.terminal, text.encode("utf-8"))

    def interrupt_after(self, text):
        """Types a text, waits for its echo and types Ctrl-C, which would discard input that the terminal has not passed
        on."""
        self.send(text)
        self.expect(re.escape(text))
        self.send(CTRL_C)

    def exit_code(self):
        end = time.monotonic() + PATIENCE
        while self.read(1):
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                raise AssertionError(f"it did not end after {self.seen!r}")
        else:
            _, status = os.waitpid(self.pid, 0)
        self.status = status
        return os.waitstatus_to_exitcode(status)


class ChatTerminal(unittest.TestCase):
    def test_lines_are_edited_by_characters(self):
        with Terminal() as chat:
            chat.expect(r"> ")
            chat.send("/heéé" + 2 * BACKSPACE + "lp\r")
            chat.expect(r"/stats +tokens")
            chat.expect(r"> ")
            chat.send("qit" + 2 * LEFT + "u" + HOME + "/\r")
            self.assertEqual(chat.exit_code(), 0)

    def test_a_broken_character_takes_no_other_with_it(self):
        with Terminal() as chat:
            chat.expect(r"> ")
            os.write(chat.terminal, b"/he\xc3lp\r")  # \xc3 begins a character of two bytes
            chat.expect(r"/stats +tokens")
            chat.expect(r"> ")
            chat.send("/quit\r")
            self.assertEqual(chat.exit_code(), 0)

    def test_history_comes_back(self):
        with Terminal() as chat:
            chat.expect(r"> ")
            chat.send("/stats\r")
            chat.expect(r"KV cache")
            chat.expect(r"> ")
            chat.send("/help\r")
            chat.expect(r"/quit")
            chat.expect(r"> ")
            chat.send(UP + UP)
            chat.expect(r"stats")
            chat.send("\r")
            chat.expect(r"KV cache")
            chat.expect(r"> ")
            chat.send(CTRL_D)
            self.assertEqual(chat.exit_code(), 0)

    def test_history_file_is_private(self):
        with tempfile.TemporaryDirectory() as state:
            path = os.path.join(state, "winnow", "chat-history")
            with Terminal("--history", XDG_STATE_HOME=state) as chat:
                chat.expect(r"> ")
                chat.send("/help\r")
                chat.expect(r"/quit")
                chat.expect(r"> ")
                chat.send(CTRL_D)
                self.assertEqual(chat.exit_code(), 0)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "/help\n")
            os.chmod(path, 0o644)  # as for a file that somebody copied
            with Terminal("--history", XDG_STATE_HOME=state) as chat:
                chat.expect(r"> ")
                chat.send(UP)
                chat.expect(r"/help")
                chat.send("\r")
                chat.expect(r"/quit")
                chat.expect(r"> ")
                chat.send(CTRL_D)
                self.assertEqual(chat.exit_code(), 0)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with Terminal(XDG_STATE_HOME=state) as chat:  # without --history no file is read or written
                chat.expect(r"> ")
                chat.send(UP + "/quit\r")
                self.assertEqual(chat.exit_code(), 0)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "/help\n/help\n")

    def test_ctrl_c_clears_the_line_and_keeps_the_conversation(self):
        with Terminal("-n", "8") as chat:
            chat.expect(r"> ")
            chat.send("What is the capital of Japan?\r")
            chat.expect(r"capital of Japan is Tokyo")
            chat.expect(r"> ")
            chat.send("not meant" + CTRL_C)
            chat.expect(r"\(Ctrl-C again or Ctrl-D leaves\)")
            chat.expect(r"> ")
            chat.send("/stats\r")  # not "not meant/stats"
            self.assertGreater(int(re.search(r"prompt +(\d+)", chat.expect(r"KV cache")).group(1)), 10)
            chat.expect(r"> ")
            chat.send("And of Italy?\r")  # only a chat with history knows the question
            chat.expect(r"capital of Italy")
            chat.expect(r"> ")
            chat.send("again" + CTRL_C)
            chat.expect(r"leaves\)")
            chat.expect(r"> ")
            chat.send("and again" + CTRL_C)  # does not leave, because something was typed
            chat.expect(r"leaves\)")
            chat.expect(r"> ")
            chat.send(CTRL_C)
            self.assertEqual(chat.exit_code(), 130)

    def test_keys_keep_their_order(self):
        with Terminal() as chat:
            chat.expect(r"> ")
            chat.send("not meant" + CTRL_C + "nor this" + CTRL_C + "/stats\r" + CTRL_D)  # sent at once
            chat.expect(r"leaves\)(?s:.)*leaves\)(?s:.)*KV cache")
            self.assertEqual(chat.exit_code(), 0)

    def test_the_end_may_be_typed_ahead(self):
        with Terminal() as chat:
            chat.send(CTRL_D)  # the model is still being loaded
            self.assertEqual(chat.exit_code(), 0)

    def test_the_prompt_is_there_when_keys_are_read(self):
        with Terminal() as chat:
            for _ in range(30):
                chat.expect(r"> ")
                local_modes = termios.tcgetattr(chat.terminal)[3]
                self.assertEqual(local_modes & termios.ICANON, 0)
                chat.send("/help\r")
                chat.expect(r"/quit")

    def test_ctrl_c_stops_an_answer_and_keeps_the_conversation(self):
        with Terminal() as chat:
            chat.expect(r"> ")
            chat.send("Write a long story about a river, a lantern and a violin.\r")
            chat.expect(r"100 %[^\r]*\r\x1b\[K(?s:.){40}")  # the prompt is read and the answer has begun
            chat.send(CTRL_C)
            chat.expect(r"\(stopped\)")
            chat.expect(r"> ")
            chat.send("/stats\r")
            self.assertGreater(int(re.search(r"generated +(\d+)", chat.expect(r"KV cache")).group(1)), 0)
            chat.expect(r"> ")
            chat.send("/quit\r")
            self.assertEqual(chat.exit_code(), 0)

    def test_a_document_is_read_before_anything_is_typed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text")
            with open(path, "w", encoding="utf-8") as file:
                file.write(DOCUMENT)
            with Terminal("-f", path, "-n", "4") as chat:
                tokens = int(re.search(r"(\d+) tokens\)$", chat.expect(r"\d+ tokens\)")).group(1))
                self.assertGreater(tokens, 200)
                chat.expect(r"> ")
                chat.send("/stats\r")
                self.assertEqual(int(re.search(r"prompt +(\d+)", chat.expect(r"KV cache")).group(1)), tokens)
                chat.expect(r"> ")
                chat.send("/clear\r")
                chat.expect(r"\(cleared\)")
                chat.expect(r"> ")
                chat.send("/stats\r")  # the document is in the cache again
                self.assertEqual(int(re.search(r"prompt +(\d+)", chat.expect(r"KV cache")).group(1)), tokens)
                chat.expect(r"> ")
                chat.send(CTRL_D)
                self.assertEqual(chat.exit_code(), 0)

    def test_a_dumb_terminal_has_its_own_lines(self):
        with Terminal(TERM="dumb") as chat:
            chat.expect(r"> ")
            chat.interrupt_after("not meant")
            chat.expect(r"leaves\)")
            chat.expect(r"> ")
            chat.send("/quit\n")
            self.assertEqual(chat.exit_code(), 0)
        with Terminal("--history", TERM="dumb") as chat:
            chat.expect(r"--history has no effect")
            self.assertEqual(chat.exit_code(), 2)


if __name__ == "__main__":
    if not os.path.isfile(MODEL):
        print("skipped: set WINNOW_TEST_MODEL to a GGUF file")
        sys.exit(0)
    version = subprocess.run([TOOL, "--version"], check=True, capture_output=True, text=True).stdout
    if "line editing by" not in version:
        print("skipped: this build has no line editing")
        sys.exit(0)
    unittest.main()
