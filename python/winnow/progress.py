"""The progress of a long computation: tqdm's bar if it is installed and the standard error is a terminal, else a line
on the standard error every few seconds."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import Callable, Iterator, Optional

OnProgress = Callable[[int, int], None]
SECONDS_BEFORE_LINES, SECONDS_BETWEEN_LINES = 5.0, 12.0  # as in the tool


def _lines(what: str) -> OnProgress:
    start = time.monotonic()
    due = start + min(SECONDS_BEFORE_LINES, SECONDS_BETWEEN_LINES)

    def update(done: int, total: int) -> None:
        nonlocal due
        now = time.monotonic()
        if done <= 0 or total <= 0 or now < due:
            return
        due = now + SECONDS_BETWEEN_LINES
        share = done / total
        left = math.ceil((now - start) * (1 - share) / share)
        print(f"{what}: {share:.0%}, {left} s left", file=sys.stderr, flush=True)

    return update


@contextlib.contextmanager
def progress(what: str, wanted: bool = True) -> Iterator[Optional[OnProgress]]:
    """Yields a callback that takes the work done and the work in all, or None if no progress is to be shown."""
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if not wanted or sys.stderr is None:
        yield None
        return
    if tqdm is None or not sys.stderr.isatty():
        yield _lines(what)
        return
    with tqdm(desc=what, leave=False, bar_format="{l_bar}{bar}| {elapsed}<{remaining}") as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update
