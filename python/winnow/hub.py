"""Model files from Hugging Face's hub."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Dict, List, Sequence, Union

from .errors import InvalidArgument, MissingPackage, NotFound


def _parts(file: str) -> List[str]:
    """Returns the files of the model that `file` is a part of, in order, or `file` alone if it is no part."""
    split = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", file)
    if not split:
        return [file]
    stem, _, count = split.groups()
    return [f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]


def _match(repo_id: str, files: Sequence[str], pattern: str) -> List[str]:
    """Returns the file of that name, or whose path or name matches the pattern; all parts if it is a part of a model.

    Raises NotFound if no file matches or a part is missing, and InvalidArgument if several models match.
    """
    found = [pattern] if pattern in files else [file for file in files if fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(file.rsplit("/", 1)[-1], pattern)]
    if not found:
        models = ", ".join(sorted(file for file in files if file.endswith(".gguf"))) or "none"
        raise NotFound(f"no file of {repo_id} matches '{pattern}'; its GGUF files: {models}")
    models = {tuple(_parts(file)) for file in found}
    if len(models) > 1:
        raise InvalidArgument(f"several files of {repo_id} match '{pattern}'; name one of them: {', '.join(sorted(found))}")
    parts = list(models.pop())
    missing = [file for file in parts if file not in files]
    if missing:
        raise NotFound(f"{found[0]} of {repo_id} is one of {len(parts)} parts, and the repository lacks {', '.join(missing[:3])}")
    return parts


def download(
    repo_id: str,
    filename: str,
    additional_files: Sequence[str],
    local_dir: Union[str, os.PathLike[str], None],
    local_dir_use_symlinks: Union[bool, str],
    cache_dir: Union[str, os.PathLike[str], None],
) -> str:
    """Fetches a file of a repository, its other parts and the additional files. Returns its (first part's) path."""
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
    names = [name for pattern in (filename, *additional_files) for name in _match(repo_id, files, pattern)]
    return [hf_hub_download(repo_id, name, **options) for name in dict.fromkeys(names)][0]
