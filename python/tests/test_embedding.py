"""Embeddings, with llama-cpp-python's interface."""

import numpy as np
import pytest

import winnow
from winnow.embedding import pooling_name


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def test_one_and_many(llm):
    one = llm.embed("The cat sat on the mat.")
    assert len(one) == llm.n_embd() and all(isinstance(x, float) for x in one[:3])
    many = llm.embed(["The cat sat on the mat.", "A kitten lay on the rug.", "def main(): return 7"])
    assert len(many) == 3 and many[0] == one
    assert cosine(many[0], many[1]) > cosine(many[0], many[2])
    unit, n_tokens = llm.embed("The cat sat on the mat.", normalize=True, return_count=True)
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-5)
    assert cosine(unit, one) == pytest.approx(1, abs=1e-6)
    assert n_tokens == len(llm.tokenize("The cat sat on the mat.", special=True))
    assert llm.embed([]) == []
    assert llm.embed(b"a") == llm.embed("a") == llm.embed([b"a"])[0]
    assert len(llm.create_embedding(b"a")["data"]) == 1
    for wrong in (97, [97]):
        with pytest.raises(winnow.InvalidArgument, match="not of 97|not 97"):
            llm.embed(wrong)


def test_what_was_read_stays(llm):
    llm.eval(llm.tokenize("The capital of France is"))
    n_read = llm.n_tokens
    llm.embed("another text")
    assert llm.n_tokens == n_read


def test_the_response(llm):
    answer = llm.create_embedding(["one", "two"])
    assert answer["object"] == "list" and answer["model"] == llm.model_path
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert answer["data"][1]["embedding"] == llm.embed("two")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 2
    assert len(llm.create_embedding("one", model="name")["data"]) == 1


def test_longer_than_the_context(short_llm):
    text = "word " * (short_llm.n_ctx() + 10)
    assert short_llm.embed(text, return_count=True)[1] == short_llm.n_ctx()
    with pytest.raises(winnow.ContextFull):
        short_llm.embed(text, truncate=False)


def test_pooling():
    assert pooling_name(-1) is None and pooling_name(3) == pooling_name("last") == "last"
    for wrong in (0, 4, "none", "max"):
        with pytest.raises(winnow.InvalidArgument, match="mean"):
            pooling_name(wrong)
