"""What can be kept of a cache."""

from __future__ import annotations

from typing import Dict, List, Union

from . import _core
from .errors import InvalidArgument

Budget = Union[str, int, float]


def methods() -> List[Dict[str, str]]:
    """All methods, those of registered scorers too: name, summary, paper, the four parts, what choosing costs."""
    return _core.methods()


def budget_text(budget: Budget | None) -> str | None:
    """A budget as the library takes it.

    "20%" of the prompt's entries, "5%bytes" of its bytes in f16, "64MiB"; an int is a number of tokens a head, a float
    a share from 0 to 1.
    """
    if budget is None or isinstance(budget, str):
        return budget
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise InvalidArgument(
            f"a budget is a text such as '20%', a number of tokens or a share from 0 to 1, not {budget!r}"
        )
    if isinstance(budget, int):
        return str(budget)
    if not 0 < budget <= 1:
        raise InvalidArgument(f"a share of the prompt is more than 0 and at most 1, not {budget}")
    return f"{100 * budget:.10g}%"
