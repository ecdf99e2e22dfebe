#!/usr/bin/env python3
"""Compares docs/openapi.yaml with `winnow serve`: routes, fields, every example, and malformed values of every field.

usage: openapi_test.py WINNOW VENV

WINNOW is the tool; VENV is a folder for a private environment with the packages of clients, created if it is missing.
Prints a line that begins with "skipped: " and exits with 0 if a package or the model (WINNOW_TEST_MODEL) is
unavailable.
"""
import collections
import copy
import http.client
import itertools
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

from client_support import Server, ensure_packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = ROOT / "src" / "server"
METHODS = ("get", "post", "put", "delete", "patch")
MODEL_NAME = "openapi"  # the name in the examples of /api/show
LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens")


def with_infill_tokens(model):
    """Adds infill tokens to a GGUF file's bytes, like those of models for code."""
    keys = [(b"tokenizer.ggml.fim_%s_token_id" % name, 4 + i) for i, name in enumerate((b"pre", b"suf", b"mid"))]
    more = b"".join(struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, token) for key, token in keys)
    pad = b"x" * (-(len(more) + 16) % 32)  # keeps tensors aligned
    more += struct.pack("<Q", len(pad)) + pad + struct.pack("<II", 4, 0)
    magic_and_version, n_tensors, n_values = struct.unpack_from("<8sQQ", model)
    return struct.pack("<8sQQ", magic_and_version, n_tensors, n_values + len(keys) + 1) + more + model[24:]


class Client:
    """One connection, which is reopened only after the server has announced that it closes it."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def ask(self, method, path, body=None):
        """Returns (status, media type, text). Throws if the connection drops."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.connection.request(method.upper(), path, body and body.encode(), {"Content-Type": "application/json"} if body else {})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.will_close or answer.getheader("Connection") == "close":
            self.connection.close()
            self.connection = None
        return answer.status, (answer.getheader("Content-Type") or "").split(";")[0], text


class Api:
    """The contents of docs/openapi.yaml."""

    def __init__(self):
        self.file = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
        self.closed = {"schemas": {name: self.close(schema) for name, schema in self.file["components"]["schemas"].items()}}

    def resolve(self, node):
        while "$ref" in node:
            found = self.file
            for name in node["$ref"].removeprefix("#/").split("/"):
                found = found[name.replace("~1", "/").replace("~0", "~")]
            node = found
        return node

    def operations(self):
        """Yields (method, path, operation) for every operation."""
        for path, item in self.file["paths"].items():
            for method, operation in self.resolve(item).items():
                if method in METHODS:
                    yield method, path, operation

    def close(self, schema):
        """Returns an answer's schema that allows only the fields it names."""
        if isinstance(schema, list):
            return [self.close(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        closed = {name: self.close(value) for name, value in schema.items()}
        if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
            closed["additionalProperties"] = False
        return closed

    def validator(self, schema, is_answer):
        components = self.closed if is_answer else self.file["components"]
        return jsonschema.Draft202012Validator({**(self.close(schema) if is_answer else schema), "components": components})

    def request_schema(self, operation):
        return operation["requestBody"]["content"]["application/json"]["schema"]

    def examples(self, operation):
        return {name: one["value"]
                for name, one in operation["requestBody"]["content"]["application/json"]["examples"].items()}

    def answer_validators(self, operation):
        """Returns {status or its class: {media type: [validator, and for streams of events those of their data]}}."""
        def of_media(kind, schema):
            data = []
            if kind == "text/event-stream":
                branches = self.branches(self.resolve(schema)["properties"]["data"])
                data = [one["contentSchema"] for one in branches if "contentSchema" in one]
            return [self.validator(one, True) for one in (schema, *data)]

        return {str(status): {kind: of_media(kind, media["schema"])
                              for kind, media in self.resolve(answer)["content"].items()}
                for status, answer in operation["responses"].items()}

    def branches(self, schema):
        """Yields the schemas without references and alternatives that make up `schema`."""
        schema = self.resolve(schema)
        for name in ("allOf", "anyOf"):
            for one in schema.get(name, []):
                yield from self.branches(one)
        if "allOf" not in schema and "anyOf" not in schema:
            yield schema

    def places(self, schema, inside=(), group=""):
        """Yields every field below `schema` as (steps, the shared schema that names it). A step is (key, the schema
        around it, the field's schema); the key of a list's entry is 0."""
        if "$ref" in schema:
            group = schema["$ref"].rsplit("/", 1)[1]
        schema = self.resolve(schema)
        for name in ("allOf", "anyOf"):
            for one in schema.get(name, []):
                yield from self.places(one, inside, group)
        inner = [*schema.get("properties", {}).items()]
        inner += [(0, schema["items"])] if isinstance(schema.get("items"), dict) else []
        inner += [*enumerate(schema.get("prefixItems", []))]
        for key, below in inner:
            steps = (*inside, (key, schema, below))
            yield steps, group
            yield from self.places(below, steps, group)

    def sample(self, schema):
        """Returns a value that follows the schema, with only the required fields."""
        schema = next(self.branches(schema))
        for name in ("const", "default"):
            if name in schema:
                return schema[name]
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "object")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object":
            return {name: self.sample(schema["properties"][name]) for name in schema.get("required", [])}
        if kind == "array":
            return [self.sample(one) for one in schema.get("prefixItems", [])]
        return {"string": "a", "integer": 1, "number": 1, "boolean": True, "null": None}[kind]

    def put(self, body, steps, value):
        """Returns `body` with `value` at that place; missing surrounding values are created."""
        if not steps:
            return value
        (key, around, below), *rest = steps
        wanted = list if isinstance(key, int) else dict
        if not isinstance(body, wanted):
            body = self.sample(around) if isinstance(self.sample(around), wanted) else wanted()
        if wanted is list:
            while len(body) <= key:
                body.append(self.sample(below))
        body[key] = self.put(body[key] if wanted is list else body.get(key), rest, value)
        return body


def named(steps):
    return ".".join(str(key) for key, _, _ in steps)


def depth_of(body, steps):
    """Returns the number of steps that exist in the body."""
    for n, (key, _, _) in enumerate(steps):
        if isinstance(key, int) and not (isinstance(body, list) and len(body) > key):
            return n
        if isinstance(key, str) and not (isinstance(body, dict) and key in body):
            return n
        body = body[key]
    return len(steps)


def nested(levels, make):
    value = 1
    for _ in range(levels):
        value = make(value)
    return value


PLACE = "here"
MOST_HELD = 5  # answers per field and status that are validated, which takes longer than getting the answer
VALUES = [json.dumps(value) for value in (
    None, True, False, 0, -1, 1, 0.5, 1e308, -1e308, 2**31, -2**31 - 1, 2**63 - 1, -2**63, 2**64, 10**40,
    "", "a", "\0", "\ufffe🦊", "a\n" * 3000, [], {}, [None], [[]], [{}], [1], [-1], ["", "a"],
    {"": None}, {"type": "object", "properties": 1}, {"type": "text", "text": 1}, list(range(3000)),
    {str(i): i for i in range(4097)}, nested(50, lambda v: [v]), nested(50, lambda v: {"a": v}), nested(50, lambda v: {"items": v}),
    nested(80, lambda v: [v]),
)]
BODIES = ["", "null", "1", '"a"', "[]", "[{}]", "{", "{}", "{}{}", '{"a"}', "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}',
          "\0", "\ufeff{}", '{"a": ' + "9" * 5000 + "}", "[" * 100000, '{"a":' * 100000, '{"": 1, "": 2}', " " * 10000]


class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = pathlib.Path(cls.folder.name) / (MODEL_NAME + ".gguf")
        subprocess.run([sys.executable, ROOT / "bench/server/short_model.py", os.environ["WINNOW_TEST_MODEL"], model], check=True)
        model.write_bytes(with_infill_tokens(model.read_bytes()))
        # SmolLM2's own template knows no tools; this one uses the same markers.
        template = os.environ["WINNOW_TEMPLATES"] + "/Qwen-Qwen2.5-7B-Instruct.jinja"
        cls.server = Server("-m", str(model), "-t", "1", "-c", "512", "-n", "4", "--chat-template-file", template)
        cls.api = Api()
        cls.client = Client(cls.server.port)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, "".join(cls.server.lines[-20:])

    # --- The file and the sources

    def test_version(self):
        self.assertEqual(json.loads(self.client.ask("get", "/api/version")[2])["winnow"], self.api.file["info"]["version"])

    def test_schemas(self):
        """The schemas are valid, and their references resolve."""
        def nodes(node):
            yield node
            for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
                yield from nodes(inner)

        for node in nodes(self.api.file):
            if isinstance(node, dict) and isinstance(node.get("$ref"), str):
                self.api.resolve(node)
            # A comma in an unquoted text makes a key without a value.
            if isinstance(node, dict):
                self.assertEqual([key for key, value in node.items() if value is None and key != "content"], [])
        for schema in self.api.file["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_routes(self):
        """The sources contain every text that may be a path; the server decides whether, and with which method, it is
        one."""
        texts = {text for source in SERVER.rglob("*.cc") for text in re.findall(r'"(/[^"\s]*)"', source.read_text())}
        candidates = {re.sub(r"\([^)]*\)", "{}", prefix + text) for text in texts for prefix in ("", "/v1")}
        written = {re.sub(r"{\w+}", "{}", path): path for path in self.api.file["paths"]}
        self.assertGreaterEqual(candidates, set(written))
        found = set()
        for path, method in itertools.product(sorted(candidates), METHODS):
            status, _, text = self.client.ask(method, path.replace("{}", "any"), "{}" if method != "get" else None)
            if status != 404 or "there is no " + method.upper() not in text:
                found.add((method, written.get(path, path)))
        self.assertEqual(found, {(method, path) for method, path, _ in self.api.operations()})

    def test_fields(self):
        """Every field that the sources read is in the file, and every request field of the file is in the sources."""
        asked = {steps[-1][0] for _, _, operation in self.api.operations() if "requestBody" in operation
                 for steps, _ in self.api.places(self.api.request_schema(operation))} - {0, 1}
        sources = "\n".join(source.read_text() for source in SERVER.rglob("*.cc") if source.name != "metrics.cc")
        literals = set(re.findall(r'"(\w+)"', sources)) | set(re.findall(r'(?<=/)\w+', "\n".join(re.findall(r'"(/\S+)"', sources))))
        self.assertEqual(asked - literals, set())
        read = re.findall(r'(?<!->)\b(?:text|boolean|integer|number|object|find|take|take_whole|taken_text|parse_texts|refuse_unless)'
                          r'\((?:\w+, )?"(\w+)"', sources)
        self.assertGreater(len(set(read)), 100)
        self.assertEqual(set(read) - asked, set())

    # --- Answers

    def parts(self, kind, text):
        """Returns the parts that are validated by the schemas of the media type: [a value for each schema]."""
        if kind == "application/x-ndjson":
            return [[json.loads(line)] for line in text.splitlines()]
        if kind == "text/event-stream":
            events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in text.split("\n\n") if event]
            return [[event, json.loads(event["data"])] for event in events if event["data"] != "[DONE]"]
        return [[json.loads(text) if kind == "application/json" else text]]

    def problem(self, validators, status, kind, text):
        """Returns how an answer differs from the file, or None."""
        allowed = validators.get(str(status), validators.get(f"{status // 100}XX", {}))
        if kind not in allowed:
            return f"{status} with {kind or 'no type'} is not in the file: {text[:300]}"
        for values in self.parts(kind, text):
            for validator, value in zip(allowed[kind], values, strict=True):
                error = jsonschema.exceptions.best_match(validator.iter_errors(value))
                if error:
                    return f"{status}, at {error.json_path}: {error.message[:300]}"
        return None

    def test_answers_of_get(self):
        for method, path, operation in self.api.operations():
            if method != "get":
                continue
            name = MODEL_NAME
            if "{response_id}" in path:
                name = json.loads(self.client.ask("post", "/v1/responses", '{"input": "Hello"}')[2])["id"]
            with self.subTest(path):
                status, kind, text = self.client.ask(method, re.sub(r"{\w+}", name, path))
                self.assertEqual(status, 200)
                self.assertIsNone(self.problem(self.api.answer_validators(operation), status, kind, text))

    def test_stored_responses(self):
        paths = self.api.file["paths"]
        validators = self.api.answer_validators(paths["/v1/responses/{response_id}"]["delete"])
        first = json.loads(self.client.ask("post", "/v1/responses", '{"input": "Hello"}')[2])["id"]
        body = {"input": "And?", "previous_response_id": first, "max_output_tokens": 2}
        status, kind, text = self.client.ask("post", "/v1/responses", json.dumps(body))
        self.assertEqual(status, 200)
        self.assertIsNone(self.problem(self.api.answer_validators(paths["/v1/responses"]["post"]), status, kind, text))
        for wanted in (200, 404):
            status, kind, text = self.client.ask("delete", "/responses/" + first)
            self.assertEqual(status, wanted)
            self.assertIsNone(self.problem(validators, status, kind, text))

    def test_examples(self):
        for method, path, operation in self.api.operations():
            if "requestBody" not in operation:
                continue
            asked, validators = self.api.validator(self.api.request_schema(operation), False), self.api.answer_validators(operation)
            for name, body in self.api.examples(operation).items():
                with self.subTest(f"{path}: {name}"):
                    asked.validate(body)
                    status, kind, text = self.client.ask(method, path, json.dumps(body))
                    self.assertEqual(status, 200, text)
                    self.assertIsNone(self.problem(validators, status, kind, text))
                    self.assertNotIn('"error":{', text)

    # --- Malformed values

    def bodies(self, operation, seen):
        """Yields (name, JSON) of requests with one wrong value each. Fields of schemas that an earlier route also had
        get every seventh value here, different ones each time."""
        schema, examples = self.api.request_schema(operation), list(self.api.examples(operation).values())
        visited = set()
        for steps, group in self.api.places(schema):
            if named(steps) in visited:
                continue
            visited.add(named(steps))
            base = copy.deepcopy(max(examples, key=lambda one: (depth_of(one, steps), not one.get("stream"), -len(json.dumps(one)))))
            for length in LENGTHS:
                if length in base:
                    base[length] = 1
            if "options" in base:
                base["options"]["num_predict"] = 1
            before, after = json.dumps(self.api.put(base, steps, PLACE)).split(json.dumps(PLACE))
            turn = seen[group, named(steps)]
            seen[group, named(steps)] += 1
            for number, value in enumerate(VALUES):
                if not turn or (number + turn) % 7 == 0:
                    yield f"{named(steps)}, value {number}", before + value + after
        for number, text in enumerate(BODIES):
            yield f"body {number}", text

    def test_malformed_values(self):
        start = time.monotonic()
        seen = collections.Counter()
        counts, held = collections.Counter(), collections.Counter()
        problems = {}
        for method, path, operation in self.api.operations():
            if "requestBody" not in operation or path in ("/chat/completions", "/completions", "/responses", "/embeddings"):
                continue  # the same as those with /v1
            validators = self.api.answer_validators(operation)
            began, n = time.monotonic(), counts.total()
            for name, body in self.bodies(operation, seen):
                try:
                    status, kind, text = self.client.ask(method, path, body)
                    problem = f"{status}: {text[:300]}" if status >= 500 else None
                    place = path, name.rsplit(", ", 1)[0], status
                    held[place] += 1
                    if not problem and held[place] <= MOST_HELD:
                        problem = self.problem(validators, status, kind, text)
                except (OSError, http.client.HTTPException) as error:
                    self.client = Client(self.server.port)
                    status, problem = 0, f"the connection dropped: {error!r}"
                counts[status] += 1
                if problem:
                    problems.setdefault(f"{path}, {name.rsplit(', ', 1)[0]}", f"{name}: {problem}\n  {body[:400]}")
            print(f"{path}: {counts.total() - n} requests in {time.monotonic() - began:.1f} s", file=sys.stderr)
        for path in ("/v1/models/", "/v1/responses/"):
            for name in ("%00", "%ff%fe", "..%2f..", "a" * 8000, urllib.parse.quote("🦊"), "%", "%zz", "a/b", "(", "{}"):
                status, _, text = self.client.ask("get", path + name)
                if status >= 500 or status == 200:
                    problems[path + name[:20]] = f"{status}: {text[:300]}"
        print(f"malformed values: {dict(counts)} in {time.monotonic() - start:.0f} s", file=sys.stderr)
        self.assertGreater(counts[400], 1000)
        self.assertEqual(self.client.ask("get", "/health")[0], 200)
        state = json.loads(self.client.ask("get", "/v1/kv")[2])
        self.assertEqual([state["queued"], state["reading"], state["answering"]], [0, 0, 0])
        self.assertFalse(problems, "\n".join(f"{path} {problem}" for path, problem in list(problems.items())[:40]))


if __name__ == "__main__":
    ensure_packages(__file__)
    import jsonschema
    import yaml
    unittest.main(argv=sys.argv[:1])
