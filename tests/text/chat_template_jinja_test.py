#!/usr/bin/env python3
"""Compares winnow's renderings of well-known models' chat templates with those of Python's jinja2.

usage: chat_template_jinja_test.py RENDER_CHAT TEMPLATES

RENDER_CHAT is the program of render_chat.cc; TEMPLATES is the folder of templates next to libllama-common's headers.
"""
import json
import pathlib
import subprocess
import sys
import unittest

import jinja2
import jinja2.ext
import jinja2.sandbox

OWN = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"
# One template of each family. The templates of libllama's sources are read from there.
FAMILIES = {
    "Qwen3": "Qwen-Qwen3-0.6B.jinja",
    "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct.jinja",
    "Llama 3.1": "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "Llama 3.2": "meta-llama-Llama-3.2-3B-Instruct.jinja",
    "Llama 3.3": "meta-llama-Llama-3.3-70B-Instruct.jinja",
    "Gemma 2": "google-gemma-2-2b-it.jinja",
    "Gemma 3": "google-gemma-3.jinja",
    "Gemma 4": "google-gemma-4-31B-it.jinja",
    "Mistral Nemo": "mistralai-Mistral-Nemo-Instruct-2407.jinja",
    "Mistral Small": "Mistral-Small-3.2-24B-Instruct-2506.jinja",
    "Phi-3.5": "microsoft-Phi-3.5-mini-instruct.jinja",
    "Phi-4": "microsoft-phi-4.jinja",
    "Phi-4-mini": "microsoft-Phi-4-mini.jinja",
    "gpt-oss": "openai-gpt-oss-120b.jinja",
    "Hermes 3": "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
    "SmolLM2": "HuggingFaceTB-SmolLM2.jinja",
    "SmolLM3": "HuggingFaceTB-SmolLM3-3B.jinja",
    "Granite": "ibm-granite-granite-3.3-2B-Instruct.jinja",
    "LFM2": "LFM2-8B-A1B.jinja",
    "Qwen3.5": "Qwen3.5-4B.jinja",
    "Granite 4": "ibm-granite-granite-4.0.jinja",
    "Command R7B": "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
    "Seed-OSS": "ByteDance-Seed-OSS.jinja",
    "GLM-4.7-Flash": "GLM-4.7-Flash.jinja",
    "Ministral 3": "mistralai-Ministral-3-14B-Reasoning-2512.jinja",
}
USER = {"role": "user", "content": "Who found the boot?"}
CHATS = [
    [USER],
    [USER, {"role": "assistant", "content": "A waiter did."}, {"role": "user", "content": "Where?"}],
    [{"role": "user", "content": "  spaces,\n\nlines, \"quotes\" and Ünïcode 北京 🍕 <tags> {{ braces }}  "}],
]
SYSTEM = {"role": "system", "content": "Be brief."}
CHATS += [[SYSTEM, *chat] for chat in CHATS]


class RaisedByTemplate(Exception):
    pass


def render(source, chat, add_generation_prompt, tokens):
    """Renders like the package transformers, for which the templates are written."""
    def raise_exception(message):
        raise RaisedByTemplate(message)

    def tojson(value, indent=None, ensure_ascii=False, **rest):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **rest)

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment.from_string(source).render(
        messages=chat, add_generation_prompt=add_generation_prompt, date_string=strftime_now("%d %b %Y"),
        datetime=strftime_now("%b %d %Y"), enable_thinking=True, **tokens)


def strftime_now(form):
    import datetime
    return datetime.datetime.now().strftime(form)


class ChatTemplates(unittest.TestCase):
    def setUp(self):
        self.maxDiff = None

    def test_rendering(self):
        for family, name in FAMILIES.items():
            path = OWN / name if (OWN / name).exists() else TEMPLATES / name
            source = path.read_text()
            probe = subprocess.Popen([RENDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            tokens = json.loads(probe.stdout.readline())
            n_rendered = 0
            for chat in CHATS:
                for add in (True, False):
                    probe.stdin.write(json.dumps({"messages": chat, "add_generation_prompt": add}) + "\n")
                    probe.stdin.flush()
                    answer = json.loads(probe.stdout.readline())
                    with self.subTest(family=family, chat=chat, add=add):
                        try:
                            expected = render(source, chat, add, tokens)
                        except RaisedByTemplate:
                            continue  # the family has no system messages; libllama-common puts them elsewhere
                        expected = expected.removeprefix(tokens["bos_token"])  # tokenising adds it
                        self.assertEqual(answer.get("text", answer), expected)
                        n_rendered += 1
            probe.stdin.close()
            probe.wait()
            probe.stdout.close()
            self.assertGreaterEqual(n_rendered, len(CHATS), family)


if __name__ == "__main__":
    RENDER = sys.argv[1]
    TEMPLATES = pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
