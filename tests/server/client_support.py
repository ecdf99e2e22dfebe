"""Shared by the tests with real client packages: their environment, and a server on a free port."""
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

# The last two are for docs/openapi.yaml.
PACKAGES = ["openai==3.52.0", "anthropic==2.12.0", "ollama==0.6.3", "langchain-openai==1.7.3", "pydantic-ai-slim[openai]==2.68.0",
            "jsonschema==4.26.0", "PyYAML==6.0.4"]


def skip(reason):
    print("skipped: " + reason)
    sys.exit(0)


def ensure_packages(script, packages=PACKAGES):
    """Restarts `script` in the environment (its second argument) with the packages, which is created if it is missing.

    Prints a reason and exits if there is no model or the packages cannot be installed.
    """
    if not os.environ.get("WINNOW_TEST_MODEL"):
        skip("WINNOW_TEST_MODEL names no model")
    os.environ["WINNOW_MODEL"] = os.environ["WINNOW_TEST_MODEL"]
    if "--ready" in sys.argv:
        return
    venv = pathlib.Path(sys.argv[2])
    python = venv / "bin" / "python"
    stamp = venv / "clients.stamp"
    wanted = " ".join(packages)
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(str(venv) + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            made = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
            if made.returncode != 0:
                skip("no Python environment: " + made.stderr.strip()[-200:])
            got = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], capture_output=True,
                                 text=True, timeout=400)
            if got.returncode != 0:
                skip(wanted + " cannot be had: " + got.stderr.strip()[-200:])
            stamp.write_text(wanted)
    os.execv(str(python), [str(python), script, *sys.argv[1:], "--ready"])


class Server:
    """A server on a free port; its log is read in the background."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([sys.argv[1], "serve", "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        self.port = None
        self.lines = []
        ready = threading.Event()

        def read():
            for line in self.process.stderr:
                self.lines.append(line)
                event = json.loads(line) if line.startswith("{") else {}
                self.port = event.get("port", self.port)
                if event.get("event") == "ready":
                    ready.set()
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        assert ready.wait(60) and self.process.poll() is None, "".join(self.lines)
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start_with_tools(*flags):
    """Starts a server with the key "the-key". SmolLM2's own template knows no tools; this one uses the same markers."""
    template = os.environ["WINNOW_TEMPLATES"] + "/Qwen-Qwen2.5-7B-Instruct.jinja"
    return Server("--api-key", "the-key", "--temp", "0", "-c", "4096", "--chat-template-file", template, *flags)
