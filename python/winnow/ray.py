"""Evaluations and servers on a Ray cluster; needs Ray (pip install 'ray[serve]>=2.60').

    import winnow.ray

    frame = winnow.ray.evaluate("model.gguf", ["snapkv", "tova"], ["20%", "10%"], "ruler", out="/shared/ruler", cpus=8)
"""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from . import evaluation
from .errors import Error, InvalidArgument, MissingPackage
from .llama import Llama
from .methods import Budget
from .progress import progress
from .ray_serve import Replica, application

try:
    import ray
    from ray.util import ActorPool
except ImportError:
    raise MissingPackage("winnow.ray needs Ray: pip install 'ray[serve]>=2.60'") from None

__all__ = ["Replica", "application", "evaluate"]

# Shards for each actor: several, so that no actor waits long for the last one to finish.
_SHARDS_PER_ACTOR = 4


class _Evaluator:
    """An actor that loads one model and runs one shard after the other with it."""

    def __init__(self, model: str, n_threads: int, setup: Optional[Callable[[], Any]]):
        self._path, self._n_threads, self._setup = model, n_threads, setup
        self._model: Any = None

    def load(self) -> Tuple[str, int]:
        """Loads the model, and returns the id of this actor's node and the bytes of memory available there.

        The constructor does not load it, since Ray would report its exceptions as the death of the actor.
        """
        if self._model is None:
            if self._setup is not None:
                self._setup()
            self._model = evaluation.load_model(self._path)
        return ray.get_runtime_context().get_node_id(), _memory_available()

    def run(self, shard: str, verbose: bool, options: Mapping[str, Any]) -> None:
        self.load()
        evaluation.evaluate(self._model, shard=shard, n_threads=self._n_threads, verbose=verbose, **options)


def _memory_available() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise Error("/proc/meminfo does not say what memory is available: give kv_memory")


def _room(cpus: int) -> int:
    """Returns how many actors of `cpus` CPUs the cluster's nodes have room for when nothing else runs."""
    return sum(int(node["Resources"].get("CPU", 0) // cpus) for node in ray.nodes() if node["Alive"])


def _count_shards(folder: str, n_actors: int) -> int:
    """Returns the number of shards of a run.

    A run that was stopped keeps the number that it began with, since it decides what is computed together, unless there
    are more actors than shards.
    """
    counts = set()
    if os.path.isdir(folder):
        names = (re.fullmatch(r"answers-\d+-of-(\d+)\.jsonl", name) for name in os.listdir(folder))
        counts = {int(name[1]) for name in names if name}
    if len(counts) == 1 and min(counts) >= n_actors:
        return min(counts)
    return _SHARDS_PER_ACTOR * n_actors


def _shared_memory(places: Sequence[Tuple[str, int]]) -> int:
    """Returns the bytes for each actor: half a node's available memory divided by its actors, where that is least.

    places: the node of every actor, and the bytes available there.
    """
    n_actors = Counter(node for node, _ in places)
    return min(free // 2 // n_actors[node] for node, free in places)


def evaluate(
    model: Union[str, os.PathLike[str]],
    methods: Optional[evaluation.Names] = None,
    budgets: Union[Budget, Sequence[Budget], None] = None,
    tasks: evaluation.Names = "fidelity",
    *,
    out: Union[str, os.PathLike[str]],
    actors: Optional[int] = None,
    cpus: int = 1,
    shards: Optional[int] = None,
    restarts: int = 3,
    setup: Optional[Callable[[], Any]] = None,
    kv_memory: Optional[int] = None,
    verbose: bool = True,
    **options: Any,
) -> Any:
    """Runs `winnow.evaluate` on a pool of Ray actors that write into one folder: the same samples, files and figures.

    model: the path of a model, the same on every node.
    out: a folder that all nodes share (NFS and the like). Continues a run that `winnow eval` or this function
        began in it.
    actors: number of actors; None: as many as the nodes have room for. Each loads the model's weights and has `cpus`
        CPUs and as many threads.
    shards: number of parts of the samples, which actors take one after the other; None: that of the folder, else four
        for each actor. All methods and budgets of a sample run together, since they share its prompt's pass.
    restarts: how often an actor that dies is started again, on any node; it continues its shard.
    setup: a function that is called once in every actor before anything else; it may define scorers.
    kv_memory: bytes of KV cache of all that an actor runs together; None: half of a node's available memory, divided
        among its actors.
    options: further arguments of `winnow.evaluate`, except n_threads and shard.

    Unless ray.init was called, connects to the cluster of RAY_ADDRESS, or starts one on this machine. Returns what
    `read_results` returns. An exception in an actor ends the run and is raised; the same call then continues it.
    """
    if isinstance(model, Llama):
        raise InvalidArgument("give the model's path, not a Llama: every actor loads it for itself")
    for name, count in (("actors", actors), ("cpus", cpus), ("shards", shards)):
        if count is not None and (count != int(count) or count < 1):
            raise InvalidArgument(f"{name} is {count}: give a whole number from 1")
    for name, instead in (("n_threads", "cpus"), ("shard", "shards")):
        if name in options:
            raise InvalidArgument(f"{name} belongs to the pool: use {instead}")
    folder = os.path.abspath(out)  # actors have other working directories
    options = {"methods": methods, "budgets": budgets, "tasks": tasks, "out": folder, "kv_memory": kv_memory, **options}
    inspect.signature(evaluation.evaluate).bind(model, **options)  # reports unknown names before anything starts
    if not ray.is_initialized():
        ray.init()
    room = _room(cpus)
    if room < (actors or 1):
        wanted = f"{actors or 1} actor{'s' if (actors or 1) > 1 else ''} of {cpus}"
        raise InvalidArgument(f"the cluster has CPUs for {room}, but not for {wanted}: add nodes, or ask for less")
    n_actors = actors or room
    n_shards = shards or _count_shards(folder, n_actors)
    pool: List[Any] = []
    try:
        start = ray.remote(_Evaluator).options(
            num_cpus=cpus, max_restarts=restarts, max_task_retries=restarts, scheduling_strategy="SPREAD"
        )
        pool = [start.remote(os.path.abspath(model), cpus, setup) for _ in range(min(n_actors, n_shards))]
        # All actors are loaded first, since those of a node share its memory. A run keeps the limit that it began with.
        places = ray.get([actor.load.remote() for actor in pool])
        if kv_memory is None and not options.get("kv_bytes_limit") and not os.path.exists(os.path.join(folder, "run.json")):
            options["kv_memory"] = _shared_memory(places)
        # Notes are the same for all shards; the first one prints them.
        work = [(f"{i + 1}/{n_shards}", verbose and i == 0, options) for i in range(n_shards)]
        results = ActorPool(pool).map_unordered(lambda actor, part: actor.run.remote(*part), work)
        with progress("shards", verbose) as update:
            for done, _ in enumerate(results, 1):
                if update is not None:
                    update(done, n_shards)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        raise Error(
            f"an actor died {restarts + 1} times; the same call continues from what {folder} has. If memory was short, "
            f"ask for fewer actors on a node (cpus), or less kv_memory. Ray says: {error}"
        ) from error
    finally:
        for actor in pool:
            ray.kill(actor)
    return evaluation.read_results(folder)
