"""Fixtures: the default model (WINNOW_TEST_MODEL, else models/), and its first layers (WINNOW_SHORT_TEST_MODEL, else the model).

The first layers take a fraction of the time and talk nonsense, for tests that do not look at answers. Tests that need a model
skip without it.
"""

import os
import pathlib

import pytest

import winnow

DEFAULT_MODEL = pathlib.Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct-Q4_1.gguf"

# About 600 tokens, with something to find.
TEXT = (
    "The harbour of Ferring lies behind a long wall of grey stone, and in winter the boats stay in it. " * 12
    + "The best thing to eat in Ferring is a sandwich with smoked eel. "
    + "In summer the boats leave before the sun is up, and the wall is full of people who wait for them. " * 12
)


@pytest.fixture(scope="session")
def whole_path():
    path = os.environ.get("WINNOW_TEST_MODEL", str(DEFAULT_MODEL))
    if not os.path.exists(path):
        pytest.skip("there is no model: WINNOW_TEST_MODEL names one")
    return path


@pytest.fixture(scope="session")
def model_path(whole_path):
    return os.environ.get("WINNOW_SHORT_TEST_MODEL", whole_path)


@pytest.fixture(scope="session")
def shared_llm(whole_path):
    return winnow.Llama(whole_path, n_ctx=2048, n_threads=2)


@pytest.fixture(scope="session")
def shared_short_llm(model_path):
    return winnow.Llama(model_path, n_ctx=2048, n_threads=2)


@pytest.fixture
def llm(shared_llm):
    shared_llm.reset()
    return shared_llm


@pytest.fixture
def short_llm(shared_short_llm):
    shared_short_llm.reset()
    return shared_short_llm


@pytest.fixture(scope="session")
def text():
    return TEXT


@pytest.fixture(scope="session")
def tool():
    """Returns the path of the command line tool of the same build."""
    path = pathlib.Path(winnow.__file__).parents[2] / "bin" / "winnow"
    if not path.exists():
        pytest.skip("the tool is not built")
    return str(path)
