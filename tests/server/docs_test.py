#!/usr/bin/env python3
"""Runs the curl examples of docs/server.md as written, on another port.

usage: docs_test.py WINNOW

Prints a line that begins with "skipped: " and exits with 0 if curl or the model (WINNOW_TEST_MODEL) is missing.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "server"))
from server_process import Server  # noqa: E402


def commands():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "server.md").read_text(), re.S)
    return [c for block in blocks for c in re.findall(r"^curl .*?(?=^curl |\Z)", block, re.S | re.M)]


def problem(output):
    """Returns the error of an answer, or None."""
    if output.startswith("data: "):
        events = [line[6:] for line in output.splitlines() if line]
        if events[-1] != "[DONE]" or "usage" not in json.loads(events[-2]):
            return "the stream does not end well"
        return next((event for event in events[:-1] if "error" in json.loads(event)), None)
    if output.startswith("# HELP"):
        return None if "winnow_ready 1" in output else "the metrics do not say that it is ready"
    answer = json.loads(output)
    return answer.get("error") and output  # null in a successful response


def main():
    model = os.environ.get("WINNOW_SHORT_TEST_MODEL") or os.environ.get("WINNOW_TEST_MODEL")
    if not model or not shutil.which("curl"):
        return print("skipped: " + ("there is no curl" if model else "WINNOW_TEST_MODEL names no model"))
    all_commands = commands()
    if len(all_commands) < 8:
        sys.exit(f"failed: only {len(all_commands)} examples were found")
    server = Server(sys.argv[1], "-m", model)
    try:
        for command in all_commands:
            ran = subprocess.run(["bash", "-c", command.replace("localhost:8080", f"localhost:{server.port}")], cwd=ROOT,
                                 capture_output=True, text=True, timeout=120)
            wrong = ran.stderr.strip() or f"exit code {ran.returncode}" if ran.returncode else problem(ran.stdout.strip())
            if wrong:
                sys.exit(f"failed: {command}\n{wrong}")
    finally:
        code = server.stop()
    if code != 0:
        sys.exit(f"failed: the server ended with {code}")
    print(f"passed: {len(all_commands)} examples")


if __name__ == "__main__":
    main()
