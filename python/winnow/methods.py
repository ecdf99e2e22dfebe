"""Eviction methods and budgets."""

from __future__ import annotations

import numbers
from typing import Dict, List, Union

from . import _core
from .errors import InvalidArgument

Budget = Union[str, int, float]


def methods() -> List[Dict[str, str]]:
    """Returns all methods, also those of registered scorers: name, summary, paper, the four parts and cost of each."""
    return _core.methods()


def budget_text(budget: Budget | None) -> str | None:
    """Returns the text form of a budget. Raises InvalidArgument for another type, or a share that is out of range.

    "20%" of the prompt's entries, "5%bytes" of its bytes in f16, "64MiB"; a whole number, also one of NumPy's, is one of
    tokens a head, another number a share from 0 to 1.
    """
    if budget is None or isinstance(budget, str):
        return budget
    if isinstance(budget, bool) or not isinstance(budget, numbers.Real):
        raise InvalidArgument(
            f"a budget is a text such as '20%', a number of tokens or a share from 0 to 1, not {budget!r}"
        )
    if isinstance(budget, numbers.Integral):
        return str(int(budget))
    if not 0 < budget <= 1:
        raise InvalidArgument(f"a share of the prompt is more than 0 and at most 1, not {budget}")
    return f"{100 * float(budget):.7g}%"  # the digits of a float32, so that its 0.2 is 20%
