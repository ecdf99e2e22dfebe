#!/usr/bin/env python3
"""Tests that require a browser are skipped if there is none, or failed if WINNOW_REQUIRE_BROWSER is set."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


class Require(unittest.TestCase):
    def ended(self, needs_model, **environment):
        """Returns (exit code, output)."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
        result = subprocess.run([sys.executable, "-c", f"import webdriver; webdriver.require(needs_model={needs_model})"],
                                cwd=pathlib.Path(__file__).parent, env={**kept, **environment}, capture_output=True,
                                text=True, timeout=60)
        return result.returncode, result.stdout + result.stderr

    def test_no_browser(self):
        code, said = self.ended(False, PATH="/nowhere")
        self.assertEqual(code, 0)
        self.assertTrue(said.startswith("skipped: there is no chromium"), said)
        code, said = self.ended(False, PATH="/nowhere", WINNOW_REQUIRE_BROWSER="1")
        self.assertEqual(code, 1)
        self.assertIn("failed: there is no chromium", said)
        self.assertNotIn("skipped", said)

    def test_no_model(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("chromium", "chromedriver"):
            (folder / name).touch(mode=0o755)
        self.assertEqual(self.ended(False, PATH=str(folder)), (0, ""))
        self.assertEqual(self.ended(True, PATH=str(folder)), (0, "skipped: WINNOW_TEST_MODEL names no model\n"))
        code, said = self.ended(True, PATH=str(folder), WINNOW_REQUIRE_BROWSER="1")
        self.assertEqual(code, 1)
        self.assertIn("failed: WINNOW_TEST_MODEL", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
