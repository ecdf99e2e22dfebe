"""Progress bars: tqdm's where it is installed and the standard error is a terminal, else none."""

from __future__ import annotations

import contextlib
import sys
from typing import Callable, Iterator, Optional

OnProgress = Callable[[int, int], None]


@contextlib.contextmanager
def progress(what: str, wanted: bool = True) -> Iterator[Optional[OnProgress]]:
    """A callback for work done and to do while the bar is open, or None where there is none."""
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if not wanted or tqdm is None or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with tqdm(desc=what, leave=False, bar_format="{l_bar}{bar}| {elapsed}<{remaining}") as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update
