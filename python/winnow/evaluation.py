"""Benchmarks of methods at budgets: `winnow eval` as a function."""

from __future__ import annotations

import csv
import io
import numbers
import os
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _core
from .arguments import whole_number
from .errors import InvalidArgument
from .llama import Llama
from .methods import Budget, budget_text
from .progress import progress

_TEXTS = ("benchmark", "question", "by", "part", "method", "budget", "key_type", "value_type", "measure")
_COUNTS = ("samples", "clusters", "failed", "kept_whole", "truncated")

Names = Union[str, Sequence[str]]


def benchmarks() -> List[Dict[str, Any]]:
    """Returns all benchmarks: name, summary and tasks of each."""
    return _core.evaluation_benchmarks()


def _list(values: Any) -> List[Any]:
    if values is None:
        return []
    return [values] if isinstance(values, (str, numbers.Real)) else list(values)


def _split_tasks(tasks: Names) -> tuple[List[str], List[str]]:
    """Returns the benchmarks, and those of their tasks that are named ("ruler/niah_single_2")."""
    names: List[str] = []
    chosen: Dict[str, List[str]] = {}
    for text in _list(tasks):
        name, _, task = text.partition("/")
        if name not in names:
            names.append(name)
        chosen.setdefault(name, []).append(task)
    for name, own in chosen.items():
        if "" in own and len(own) > 1:
            raise InvalidArgument(f"'{name}' is given both as a whole and with one of its tasks: leave one out")
    return names, [task for own in chosen.values() for task in own if task]


def read_results(*folders: Union[str, os.PathLike[str]]) -> Any:
    """Returns the means in folders of `evaluate` or `winnow eval`: a row for each benchmark, part, method and budget.

    mean, low, high: the measure (100 x score, or nats) with its 95 % interval; by, part: "all", or one task, length or
    group. docs/evaluation.md describes the other columns. The result is a pandas.DataFrame, without pandas a list of
    dicts.
    """
    text = _core.evaluation_csv([os.fspath(folder) for folder in folders])
    try:
        import pandas
    except ImportError:
        return [_row(row) for row in csv.DictReader(io.StringIO(text))]
    return pandas.read_csv(io.StringIO(text), dtype={name: str for name in _TEXTS}).fillna(
        {name: "" for name in _TEXTS}
    )


def _row(row: Mapping[str, str]) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    for name, text in row.items():
        if name in _TEXTS:
            made[name] = text
        elif text == "":
            made[name] = None
        else:
            made[name] = int(text) if name in _COUNTS else float(text)
    return made


def load_model(path: Union[str, os.PathLike[str]]) -> Any:
    """Returns a model without an engine, for several calls of `evaluate`."""
    return _core.Model.load(os.fspath(path), True, "")


def evaluate(
    model: Union[Llama, str, os.PathLike[str]],
    methods: Optional[Names] = None,
    budgets: Union[Budget, Sequence[Budget], None] = None,
    tasks: Names = "fidelity",
    *,
    out: Union[str, os.PathLike[str], None] = None,
    question: str = "agnostic",
    limit: int = 0,
    lengths: Union[int, Sequence[int]] = (),
    depths: Union[float, Sequence[float]] = (),
    seed: int = 0,
    data: Optional[Mapping[str, str]] = None,
    haystack: Optional[str] = None,
    words: Optional[str] = None,
    chat_template: Optional[bool] = None,
    n_ctx: int = 0,
    n_threads: Optional[int] = None,
    n_batch: int = 0,
    type_k: str = "f16",
    type_v: str = "f16",
    prefill_weights: str = "float",
    device: str = "cpu",
    kv_bytes_limit: int = 0,
    batch: Optional[int] = None,
    kv_memory: Optional[int] = None,
    batch_tokens: Optional[int] = None,
    retry_failed: bool = False,
    shard: Optional[str] = None,
    verbose: bool = True,
) -> Any:
    """Runs every method at every budget over benchmarks, as `winnow eval` does: the same samples, the same figures.

    model: a model, whose weights are shared, or the path of one. methods, budgets: lists; "full" runs once; budgets
        alone mean full and auto.
    tasks: benchmarks (`benchmarks()` lists them), or tasks of them: "ruler/niah_single_2"; "fidelity:ruler" measures
        how far predictions of the full cache's answers to ruler's questions are from the full cache's own.
    out: the folder of the answers, in which a run that was stopped continues; None: a temporary one.
    question: "agnostic": the cache is cut before the question is known; "aware": with it in sight; "both".
    limit: most samples of a task; 0: all.
    lengths: lengths of generated samples, in tokens. depths: places of their needles, in percent of the text.
    data: files in a benchmark's own format, by the benchmark's name.
    haystack: the text file in which needles lie. words: the folder of RULER's word lists.
    chat_template: wraps prompts in the model's chat template; None: if it has one.
    batch: most sequences at a time (32); 1: every method runs alone and is timed.
    batch_tokens: most tokens of samples that run together before their answers are written; None: as many as are read
        in a minute.
    shard: "2/8": the second of eight parts of the samples. Other processes run the other parts, with the same `out`.

    Returns what `read_results` returns, or None for a shard. An exception in a scorer ends the run and is raised.
    """
    if shard is not None and out is None:
        raise InvalidArgument("shard needs out: the folder that all shards write to")
    names, chosen = _split_tasks(tasks)
    options = _core.EvaluationOptions()
    options.benchmarks = names
    options.tasks = chosen
    options.methods = _list(methods)
    options.budgets = [budget_text(budget) for budget in _list(budgets)]
    options.question = question
    options.limit = limit
    options.lengths = [whole_number("a length", length) for length in _list(lengths)]
    options.depths = _list(depths)
    options.seed = seed
    options.data = dict(data or {})
    options.haystack = haystack or ""
    options.words = words or ""
    options.use_chat_template = chat_template
    options.n_ctx = whole_number("n_ctx", n_ctx)
    options.batch = batch
    options.kv_memory = kv_memory
    options.batch_tokens = batch_tokens
    options.retry_failed = retry_failed
    options.shard = shard or "1/1"
    options.store_as(type_k, type_v)
    core = model._model if isinstance(model, Llama) else model if isinstance(model, _core.Model) else load_model(model)

    def run(folder: str) -> Any:
        with progress("answers", verbose) as update:
            _core.evaluate(
                core, n_threads or 0, kv_bytes_limit, n_batch, prefill_weights, device, options, folder, update, _note
            )
        return read_results(folder) if shard is None else None

    def _note(sentence: str) -> None:
        if verbose:
            print(f"note: {sentence}", file=sys.stderr)

    if out is not None:
        return run(os.fspath(out))
    with tempfile.TemporaryDirectory(prefix="winnow-") as folder:
        return run(os.path.join(folder, "run"))
