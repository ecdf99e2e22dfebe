#!/usr/bin/env python3
"""Tests lm-eval's model of completions (likelihoods of continuations) against `winnow serve` with the default model.

usage: heavy_lm_eval_test.py WINNOW VENV, or `make test-heavy`

lm-eval's own code makes the requests and reads the answers. It also imports gigabytes (torch, transformers, datasets)
that are not needed for this; empty modules replace them, and the server tokenises.
"""
import importlib.machinery
import json
import sys
import types
import unittest
import unittest.mock
import urllib.request

from client_support import Server, ensure_packages

# The packages are installed without their own dependencies.
PACKAGES = ["--no-deps", "lm_eval==0.4.9.2", "aiohappyeyeballs", "aiohttp", "aiosignal", "attrs", "certifi", "charset-normalizer",
            "frozenlist", "idna", "jinja2", "markupsafe", "more-itertools", "multidict", "numpy", "propcache", "pyyaml",
            "requests", "tenacity", "tqdm", "typing-extensions", "urllib3", "yarl"]
STAND_INS = ["torch", "torch.nn", "torch.nn.functional", "transformers", "transformers.configuration_utils",
             "transformers.models", "transformers.models.auto", "transformers.models.auto.modeling_auto", "evaluate", "datasets"]
QUESTIONS = [("The capital of France is", [" Paris", " Berlin", " London", " Rome"]),
             ("Water is made of hydrogen and", [" oxygen", " iron", " bread"])]


def setUpModule():
    global server
    server = Server("-c", "2048")


def tearDownModule():
    code = server.stop()
    assert code == 0, "".join(server.lines)


def post(path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def tokens_of(texts, **_):
    if isinstance(texts, str):
        return post("/tokenize", {"content": texts})["tokens"]
    return [tokens_of(text) for text in texts]


def import_lm_eval():
    for name in STAND_INS:
        module = unittest.mock.MagicMock(name=name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__version__, module.__path__ = "0", []
        sys.modules[name] = module
    import lm_eval

    models = types.ModuleType("lm_eval.models")  # skips the package's imports
    models.__path__ = [lm_eval.__path__[0] + "/models"]
    sys.modules["lm_eval.models"] = models
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    return LocalCompletionsAPI, Instance


class LmEvalTest(unittest.TestCase):
    def test_likelihoods_of_continuations(self):
        model_of, instance_of = import_lm_eval()
        for batch_size in (1, 4):
            model = model_of(model="any", base_url=server.url + "/v1/completions", tokenizer_backend="huggingface",
                             batch_size=batch_size, max_length=2048)
            model.tok_encode = tokens_of
            asked = [(context, end) for context, ends in QUESTIONS for end in ends]
            answers = model.loglikelihood(
                [instance_of(request_type="loglikelihood", doc={}, arguments=one, idx=i) for i, one in enumerate(asked)],
                disable_tqdm=True)
            told = dict(zip(asked, answers))
            for context, ends in QUESTIONS:
                best = max(ends, key=lambda end: told[context, end][0])
                self.assertEqual(best, ends[0])
                for end in ends:
                    likelihood, is_greedy = told[context, end]
                    self.assertLess(likelihood, 0)
                    greedy = {"prompt": context, "max_tokens": len(tokens_of(end)), "temperature": 0}
                    self.assertEqual(is_greedy, post("/v1/completions", greedy)["choices"][0]["text"] == end)


if __name__ == "__main__":
    ensure_packages(__file__, PACKAGES)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
