"""Shares of people with their intervals, and the difference between two groups of people.

Wilson's interval for one share and Newcombe's for a difference of two: both stay within what a
share can be, and neither collapses to a point when nobody, or everybody, was wrong.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from wherefrom.provenance.answers import Bools
from wherefrom.provenance.intervals import LEVEL, check_level


def rate(count: int, people: int, *, level: float = LEVEL) -> dict[str, Any]:
    """count / people with Wilson's interval; without anybody no value and a reason."""
    check_level(level, 1)
    if not people:
        reason = "nobody is in this group."
        return {"count": 0, "people": 0, "value": None, "low": None, "high": None, "reason": reason}
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = count / people
    middle = (share + z * z / (2 * people)) / (1 + z * z / people)
    half = z * math.sqrt(share * (1 - share) / people + (z / (2 * people)) ** 2)
    half /= 1 + z * z / people
    return {
        "count": count,
        "people": people,
        "value": share,
        "low": min(share, max(0.0, middle - half)),
        "high": max(share, min(1.0, middle + half)),
        "reason": None,
    }


def compare_rates(event: Bools, group: Bools, *, level: float = LEVEL) -> dict[str, Any]:
    """The share of `event` in the group, among the others, and the difference of the two."""
    first = rate(int(event[group].sum()), int(group.sum()), level=level)
    other = rate(int(event[~group].sum()), int((~group).sum()), level=level)
    difference: dict[str, Any] = {"value": None, "low": None, "high": None}
    if first["value"] is None or other["value"] is None:
        difference["reason"] = "one of the two groups is empty."
    else:
        value = first["value"] - other["value"]
        below = math.hypot(first["value"] - first["low"], other["high"] - other["value"])
        above = math.hypot(first["high"] - first["value"], other["value"] - other["low"])
        difference = {"value": value, "low": value - below, "high": value + above, "reason": None}
    return {"group": first, "others": other, "difference": difference}
