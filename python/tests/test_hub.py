"""Models from Hugging Face's hub, with a stub in place of its package."""

import os
import sys
import types

import pytest

import winnow

FILES = ["README.md", "tiny-Q4_1.gguf", "tiny-Q8_0.gguf", "full/tiny-F16.gguf", "config.json"]
PARTS = [f"big/big-Q4_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


@pytest.fixture
def hub(monkeypatch, model_path):
    """Returns the stub, which gives the default model for every file."""
    stub = types.ModuleType("huggingface_hub")
    stub.fetched = []

    def hf_hub_download(repo_id, filename, **options):
        stub.fetched.append((repo_id, filename, options))
        return model_path

    stub.hf_hub_download = hf_hub_download
    stub.list_repo_files = lambda repo_id: list(FILES)
    monkeypatch.setitem(sys.modules, "huggingface_hub", stub)
    return stub


def test_one_file_matches(hub, tmp_path):
    llm = winnow.Llama.from_pretrained("some/tiny", "*Q4_1.gguf", n_ctx=512, verbose=False)
    assert llm.n_ctx() == 512
    assert hub.fetched == [("some/tiny", "tiny-Q4_1.gguf", {})]
    hub.fetched.clear()
    winnow.Llama.from_pretrained(
        "some/tiny", "*-F16.gguf", additional_files=["config.json"], local_dir=tmp_path, cache_dir=tmp_path / "c",
        local_dir_use_symlinks=False, verbose=False,
    )
    options = {"local_dir": str(tmp_path), "cache_dir": str(tmp_path / "c"), "local_dir_use_symlinks": False}
    assert hub.fetched == [("some/tiny", "full/tiny-F16.gguf", options), ("some/tiny", "config.json", options)]


@pytest.mark.parametrize("filename", ["*Q4_K_M*.gguf", PARTS[1], "*-00003-of-00003.gguf"])
def test_all_parts_of_a_model_are_fetched(hub, filename):
    hub.list_repo_files = lambda repo_id: FILES + PARTS[::-1]
    winnow.Llama.from_pretrained("some/big", filename, additional_files=PARTS[1:], verbose=False)
    assert [name for _, name, _ in hub.fetched] == PARTS


def test_a_repository_without_all_parts(hub):
    hub.list_repo_files = lambda repo_id: FILES + PARTS[:2]
    with pytest.raises(winnow.NotFound, match=f"one of 3 parts, and the repository lacks {PARTS[2]}"):
        winnow.Llama.from_pretrained("some/big", PARTS[0])
    assert not hub.fetched


def test_what_is_not_there_is_not_fetched(hub):
    with pytest.raises(winnow.NotFound, match="tiny-Q4_1.gguf, tiny-Q8_0.gguf"):
        winnow.Llama.from_pretrained("some/tiny", "*Q2_K.gguf")
    with pytest.raises(winnow.InvalidArgument, match="name one of them: tiny-Q4_1.gguf, tiny-Q8_0.gguf"):
        winnow.Llama.from_pretrained("some/tiny", "tiny-Q*.gguf")
    with pytest.raises(winnow.NotFound, match="'none.json'"):
        winnow.Llama.from_pretrained("some/tiny", "tiny-Q8_0.gguf", additional_files=["none.json"])
    assert not hub.fetched


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(winnow.MissingPackage, match="pip install huggingface_hub") as raised:
        winnow.Llama.from_pretrained("some/tiny", "tiny-Q8_0.gguf", local_dir=tmp_path)
    assert isinstance(raised.value, ImportError) and isinstance(raised.value, winnow.Error)
    assert not os.listdir(tmp_path)
