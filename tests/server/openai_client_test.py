#!/usr/bin/env python3
"""Tests OpenAI's own Python package against `winnow serve` with the default model.

usage: openai_client_test.py WINNOW VENV

WINNOW is the tool; VENV is a folder for a private environment with the packages of clients, created if it is missing.
Prints a line that begins with "skipped: " and exits with 0 if a package or the model (WINNOW_TEST_MODEL) is
unavailable.
"""
import json
import os
import pathlib
import sys
import time
import unittest

from client_support import Server, ensure_packages

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "data" / "hound-of-the-baskervilles.txt"


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "the-key", "--temp", "0", "-c", "4096")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="the-key", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, "".join(cls.server.lines)

    def chat(self, text, **more):
        more.setdefault("max_tokens", 24)
        return self.client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": text}], **more)

    def kv_in_use(self):
        return self.client.get("/kv", cast_to=dict)["bytes_in_use"] - self.client.get("/kv", cast_to=dict)["bytes_contexts"]

    def test_chat(self):
        answer = self.chat("What is the capital of Japan?")
        self.assertIn("Tokyo", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(self.chat("Tell me a story.", max_tokens=3).choices[0].finish_reason, "length")

    def test_embeddings(self):
        texts = ["The cat sat on the mat.", "A kitten lay on the rug.", "def main(): return 7"]
        answer = self.client.embeddings.create(model="any", input=texts)  # asks for base64
        cat, kitten, code = (row.embedding for row in answer.data)
        plain = self.client.embeddings.create(model="any", input=texts[0], encoding_format="float")
        for a, b in zip(cat, plain.data[0].embedding, strict=True):
            self.assertAlmostEqual(a, b, places=6)
        self.assertAlmostEqual(sum(x * x for x in cat), 1, places=4)
        self.assertGreater(sum(map(float.__mul__, cat, kitten)), sum(map(float.__mul__, cat, code)))
        self.assertEqual(answer.usage.prompt_tokens, answer.usage.total_tokens)
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model="any", input=texts, dimensions=12)

    def test_models(self):
        self.assertEqual(len(self.client.models.list().data), 1)

    def test_streaming(self):
        whole = self.chat("Name three colours.").choices[0].message.content
        chunks = list(self.chat("Name three colours.", stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), whole)
        self.assertIsNotNone(chunks[-2].choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_completions(self):
        answer = self.client.completions.create(model="any", prompt="The capital of France is", max_tokens=4, logprobs=2)
        self.assertTrue(answer.choices[0].text.startswith(" Paris"))
        self.assertEqual(len(answer.choices[0].logprobs.tokens), 4)

    def test_stop(self):
        answer = self.chat("Count from one to ten, in digits.", stop=["5", "five"])
        self.assertNotIn("5", answer.choices[0].message.content)

    def test_seed(self):
        def tell(seed):
            return self.chat("Tell me a story.", temperature=1.0, seed=seed).choices[0].message.content
        self.assertEqual(tell(7), tell(7))
        self.assertNotEqual(tell(7), tell(8))

    def test_n(self):
        answer = self.chat("Tell me a story.", temperature=1.0, seed=1, n=3)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertEqual(len({c.message.content for c in answer.choices}), 3)

    def test_logprobs(self):
        answer = self.chat("What is the capital of Japan?", logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].token, token.token)  # greedy
        self.assertEqual("".join(t.token for t in content), answer.choices[0].message.content)

    def test_json_schema(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["city", "population", "tags"],
                  "properties": {"city": {"type": "string", "maxLength": 20}, "population": {"type": "integer"},
                                 "tags": {"type": "array", "items": {"enum": ["big", "old"]}, "maxItems": 2}}}
        answer = self.chat("Describe Paris as JSON.", max_tokens=200, response_format={
            "type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}})
        said = json.loads(answer.choices[0].message.content)
        self.assertEqual(list(said), ["city", "population", "tags"])
        self.assertIsInstance(said["population"], int)

    def test_parsed_models(self):
        import pydantic

        class City(pydantic.BaseModel):
            name: str
            is_capital: bool

        answer = self.client.chat.completions.parse(
            model="any", messages=[{"role": "user", "content": "Describe Paris."}], response_format=City, max_tokens=100)
        self.assertIsInstance(answer.choices[0].message.parsed.is_capital, bool)

    def test_tools_over_many_turns(self):
        templates = os.environ.get("WINNOW_TEMPLATES")
        if not templates:
            self.skipTest("the folder of templates is not named")
        # SmolLM2's own template knows no tools; this one uses the same markers.
        server = Server("--temp", "0", "-c", "4096", "--chat-template-file", templates + "/Qwen-Qwen2.5-7B-Instruct.jinja")
        try:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=120)
            tools = [{"type": "function", "function": {
                "name": "get_weather", "description": "The weather of a city.", "strict": True,
                "parameters": {"type": "object", "required": ["city"], "additionalProperties": False,
                               "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}}}}]
            messages = [{"role": "system", "content": "Be brief."}]
            for city in ("Oslo", "Rome", "Oslo"):
                messages.append({"role": "user", "content": f"How is the weather in {city}?"})
                calls = {}
                reason = None
                with client.chat.completions.create(model="any", messages=messages, tools=tools, tool_choice="required",
                                                    parallel_tool_calls=False, max_tokens=100, stream=True) as stream:
                    for chunk in stream:
                        for call in chunk.choices[0].delta.tool_calls or []:
                            kept = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                            kept["arguments"] += call.function.arguments or ""
                        reason = chunk.choices[0].finish_reason or reason
                self.assertEqual(reason, "tool_calls")
                self.assertEqual([call["name"] for call in calls.values()], ["get_weather"])
                self.assertIn(json.loads(calls[0]["arguments"])["city"], ("Oslo", "Rome"))
                messages.append({"role": "assistant", "content": None, "tool_calls": [
                    {"id": calls[0]["id"], "type": "function",
                     "function": {"name": "get_weather", "arguments": calls[0]["arguments"]}}]})
                messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "rain, 7 degrees"})
                answer = client.chat.completions.create(model="any", messages=messages, tools=tools, tool_choice="none",
                                                        max_tokens=40)
                self.assertTrue(answer.choices[0].message.content)
                self.assertIsNone(answer.choices[0].message.tool_calls)
                messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        finally:
            self.assertEqual(server.stop(), 0)

    def test_responses(self):
        first = self.client.responses.create(model="any", input="What is the capital of Japan?", max_output_tokens=24,
                                              temperature=0)
        self.assertIn("Tokyo", first.output_text)
        self.assertEqual(first.status, "completed")
        second = self.client.responses.create(
            model="any", input="And of Italy?", previous_response_id=first.id, max_output_tokens=24, temperature=0)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens)
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, first.output_text)
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    def test_streamed_responses(self):
        with self.client.responses.stream(model="any", input="What is the capital of Japan?",
                                          max_output_tokens=24, temperature=0) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            self.assertEqual(stream.get_final_response().output_text, text)
        self.assertIn("Tokyo", text)

    def test_parsed_responses(self):
        import pydantic

        class City(pydantic.BaseModel):
            name: str
            is_capital: bool

        answer = self.client.responses.parse(model="any", input="Describe Paris.", text_format=City,
                                             max_output_tokens=100)
        self.assertIsInstance(answer.output_parsed.is_capital, bool)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("x", temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("word " * 5000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            self.chat("x", extra_body={"kv": {"evict": "nothing", "budget": "20%"}})
        with self.assertRaises(openai.BadRequestError) as caught:  # this model's template has no tools
            self.chat("x", tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertIn("--chat-template-file", str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            self.client.images.generate(model="any", prompt="x")
        stranger = openai.OpenAI(base_url=self.server.url + "/v1", api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            stranger.models.list()

    def test_cancellation(self):
        stream = self.chat("Tell me a very long story.", max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
        for _ in range(5):
            next(stream)
        stream.close()
        deadline = time.time() + 10
        while self.kv_in_use() > 0 and time.time() < deadline:
            time.sleep(0.1)
        self.assertEqual(self.kv_in_use(), 0)

    def test_shared_document(self):
        document = DOCUMENT.read_text()[:6000]
        kv = {"context": document, "evict": "snapkv", "budget": "30%"}
        first = self.chat("Who is Dr. Mortimer?", extra_body={"kv": kv}, max_tokens=8)
        second = self.chat("Where is the moor?", extra_body={"kv": kv}, max_tokens=8)
        self.assertEqual(first.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, 1000)
        kept = second.timings["kv"]
        self.assertLess(kept["entries_kept"], 0.35 * kept["entries_full"])


class LoadTest(unittest.TestCase):
    def test_answers_under_load_equal_those_alone(self):
        from concurrent.futures import ThreadPoolExecutor
        server = Server("--temp", "0", "-c", "4096", "-t", "2")
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)
        document = DOCUMENT.read_text()[:3000]
        policies = [None, {"evict": "snapkv", "budget": "40%"}, {"context": document, "evict": "lava", "budget": "40%"}]

        def ask(i):
            text = f"{document[100 * (i % 16):100 * (i % 16) + 600]}\nSay something about number {i}."
            return client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": text}], max_tokens=12,
                extra_body={"kv": policies[i % 3] or {}}).choices[0].message.content

        n = int(os.environ.get("WINNOW_LOAD_REQUESTS", "12"))
        alone = [ask(i) for i in range(n)]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(ask, range(n)))
        server.stop()
        different = [i for i in range(n) if alone[i] != together[i]]
        print(f"{len(different)} of {n} answers differ under load", file=sys.stderr)
        self.assertEqual(different, [])


if __name__ == "__main__":
    ensure_packages(__file__)
    import openai

    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
