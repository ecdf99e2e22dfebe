#!/usr/bin/env python3
"""Tests Anthropic's and ollama's own Python packages against `winnow serve` with the default model.

usage: other_clients_test.py WINNOW VENV, like openai_client_test.py
"""
import json
import unittest

from client_support import ensure_packages, start_with_tools

SCHEMA = {"type": "object", "required": ["city"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}}


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_with_tools()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, "".join(cls.server.lines)


class AnthropicTest(ClientTest):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.server.url, api_key="the-key", max_retries=0, timeout=120)

    def ask(self, text, **more):
        more.setdefault("max_tokens", 24)
        return self.client.messages.create(model="any", messages=[{"role": "user", "content": text}], **more)

    def test_message(self):
        answer = self.ask("What is the capital of Japan?", system="Be brief.")
        self.assertIn("Tokyo", answer.content[0].text)
        self.assertEqual(answer.stop_reason, "end_turn")
        self.assertGreater(answer.usage.input_tokens, 0)
        self.assertEqual(self.ask("Tell me a story.", max_tokens=3).stop_reason, "max_tokens")
        stopped = self.ask("Count from one to ten, in digits.", stop_sequences=["5"], max_tokens=60)
        if stopped.stop_reason == "stop_sequence":
            self.assertEqual(stopped.stop_sequence, "5")
        self.assertNotIn("5", stopped.content[0].text)

    def test_count_tokens(self):
        text = "What is the capital of Japan?"
        count = self.client.messages.count_tokens(model="any", messages=[{"role": "user", "content": text}])
        usage = self.ask(text).usage
        self.assertEqual(count.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_stream(self):
        whole = self.ask("Name three colours.").content[0].text
        with self.client.messages.stream(model="any", max_tokens=24,
                                         messages=[{"role": "user", "content": "Name three colours."}]) as stream:
            self.assertEqual("".join(stream.text_stream), whole)
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, whole)
        self.assertGreater(final.usage.output_tokens, 0)

    def test_tools_over_many_turns(self):
        tools = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}]
        messages = []
        for city in ("Oslo", "Rome"):
            messages.append({"role": "user", "content": f"How is the weather in {city}?"})
            with self.client.messages.stream(model="any", max_tokens=100, messages=messages, tools=tools,
                                             tool_choice={"type": "any", "disable_parallel_tool_use": True}) as stream:
                answer = stream.get_final_message()
            self.assertEqual(answer.stop_reason, "tool_use")
            call = answer.content[-1]
            self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
            self.assertIn(call.input["city"], ("Oslo", "Rome"))
            messages.append({"role": "assistant", "content": answer.content})
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": "rain, 7 degrees"}]})
            said = self.client.messages.create(model="any", max_tokens=40, messages=messages, tools=tools,
                                               tool_choice={"type": "none"})
            self.assertEqual(said.content[0].type, "text")
            messages.append({"role": "assistant", "content": said.content})

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask("x", extra_body={"temperature": -1})
        self.assertIn("temperature", str(caught.exception))
        stranger = anthropic.Anthropic(base_url=self.server.url, api_key="wrong", max_retries=0)
        with self.assertRaises(anthropic.AuthenticationError):
            stranger.messages.create(model="any", max_tokens=1, messages=[{"role": "user", "content": "x"}])


class OllamaTest(ClientTest):
    def setUp(self):
        self.client = ollama.Client(host=self.server.url, headers={"Authorization": "Bearer the-key"}, timeout=120)
        self.options = {"num_predict": 24, "temperature": 0}

    def chat(self, text, **more):
        options = {**self.options, **more.pop("options", {})}
        return self.client.chat(model="any", messages=[{"role": "user", "content": text}], options=options, **more)

    def test_chat(self):
        answer = self.chat("What is the capital of Japan?")
        self.assertIn("Tokyo", answer.message.content)
        self.assertEqual(answer.done_reason, "stop")
        self.assertGreater(answer.eval_count, 0)
        pieces = [part.message.content for part in self.chat("What is the capital of Japan?", stream=True)]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), answer.message.content)

    def test_generate(self):
        answer = self.client.generate(model="any", prompt="The capital of France is", raw=True,
                                      options={**self.options, "num_predict": 4})
        self.assertTrue(answer.response.startswith(" Paris"))
        self.assertEqual(answer.done_reason, "length")
        parts = list(self.client.generate(model="any", prompt="Say hello.", stream=True, options=self.options))
        self.assertTrue("".join(part.response for part in parts))
        self.assertTrue(parts[-1].done)

    def test_embed(self):
        answer = self.client.embed(model="any", input=["The cat sat on the mat.", "Oslo"])
        self.assertEqual(len(answer.embeddings), 2)
        self.assertAlmostEqual(sum(x * x for x in answer.embeddings[0]), 1, places=4)
        raw = self.client.embeddings(model="any", prompt="Oslo").embedding
        length = sum(x * x for x in raw) ** 0.5
        for a, b in zip(raw, answer.embeddings[1], strict=True):
            self.assertAlmostEqual(a / length, b, places=5)

    def test_schema(self):
        answer = self.chat("Where is the Colosseum?", format=SCHEMA)
        self.assertIn(json.loads(answer.message.content)["city"], ("Oslo", "Rome"))

    def test_tools(self):
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
                                                   "parameters": SCHEMA}}]
        messages = [{"role": "user", "content": "How is the weather in Oslo?"},
                    {"role": "assistant", "content": "", "tool_calls": [
                        {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
                    {"role": "tool", "tool_name": "get_weather", "content": "rain"}]
        answer = self.client.chat(model="any", messages=messages, tools=tools, options=self.options)
        self.assertTrue(answer.message.content or answer.message.tool_calls)

    def test_what_there_is(self):
        models = self.client.list().models
        self.assertEqual(len(models), 1)
        shown = self.client.show(models[0].model)
        self.assertIn("tools", shown.capabilities)
        self.assertEqual(shown.details.format, "gguf")
        self.assertEqual(len(self.client.ps().models), 1)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.show("other")
        self.assertEqual(caught.exception.status_code, 404)

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.chat("x", options={"temperature": -1})
        self.assertIn("temperature", caught.exception.error)



if __name__ == "__main__":
    ensure_packages(__file__)
    import sys

    import anthropic
    import ollama

    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
