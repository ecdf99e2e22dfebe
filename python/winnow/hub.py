"""Model files from Hugging Face's hub."""

from __future__ import annotations

import fnmatch
import os
from typing import Dict, Sequence, Union

from .errors import InvalidArgument, MissingPackage, NotFound


def _match(repo_id: str, files: Sequence[str], pattern: str) -> str:
    """The one file of that name, or whose path or name matches the pattern."""
    if pattern in files:
        return pattern
    found = [file for file in files if fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(file.rsplit("/", 1)[-1], pattern)]
    if not found:
        models = ", ".join(sorted(file for file in files if file.endswith(".gguf"))) or "none"
        raise NotFound(f"no file of {repo_id} matches '{pattern}'; its GGUF files: {models}")
    if len(found) > 1:
        raise InvalidArgument(f"several files of {repo_id} match '{pattern}', name one of them: {', '.join(sorted(found))}")
    return found[0]


def download(
    repo_id: str,
    filename: str,
    additional_files: Sequence[str],
    local_dir: Union[str, os.PathLike[str], None],
    local_dir_use_symlinks: Union[bool, str],
    cache_dir: Union[str, os.PathLike[str], None],
) -> str:
    """The path of a repository's file on this machine, and of what is to lie beside it."""
    try:
        from huggingface_hub import hf_hub_download, list_repo_files
    except ImportError:
        raise MissingPackage(
            "from_pretrained() needs huggingface_hub: pip install huggingface_hub (or download the GGUF file yourself and "
            "give its path to Llama)"
        ) from None
    options: Dict[str, object] = {}
    if local_dir is not None:
        options["local_dir"] = os.fspath(local_dir)
    if cache_dir is not None:
        options["cache_dir"] = os.fspath(cache_dir)
    if local_dir_use_symlinks != "auto":
        options["local_dir_use_symlinks"] = local_dir_use_symlinks
    files = list_repo_files(repo_id)
    # All names are looked up before anything is fetched.
    names = [_match(repo_id, files, pattern) for pattern in (filename, *additional_files)]
    return [hf_hub_download(repo_id, name, **options) for name in names][0]
