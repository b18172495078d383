"""THE table: one row per published algorithm, as what it sets apart from the defaults of `Algorithm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT = "grpo"


@dataclass(frozen=True)
class Row:
    """A published algorithm in the words of a recipe; `source` is its arXiv id."""

    title: str
    source: str
    stages: dict[str, Any]


PRESETS: dict[str, Row] = {
    "grpo": Row("GRPO", "2402.03300", {}),
    "dr_grpo": Row("Dr. GRPO", "2503.20783", {"advantage": {"kind": "centred"}, "aggregate": "constant"}),
    "dapo": Row(
        "DAPO",
        "2503.14476",
        {
            "shaping": [{"kind": "overlong"}],
            "admit": {"kind": "mixed"},
            "clip": {"kind": "fixed", "low": 0.2, "high": 0.28},
            "aggregate": "token",
        },
    ),
    "cispo": Row(
        "CISPO",
        "2506.13585",
        {
            "clip": {"kind": "fixed", "low": 1.0, "high": 4.0},
            "surrogate": {"kind": "clipped_weight"},
            "aggregate": "token",
        },
    ),
    "gspo": Row(
        "GSPO",
        "2507.18071",
        {
            "level": "sequence",
            "clip": {"kind": "fixed", "low": 3e-4, "high": 4e-4},
            "staging": {"minibatches": 4},
        },
    ),
    "sapo": Row(
        "SAPO",
        "2511.20347",
        {"clip": {"kind": "none"}, "surrogate": {"kind": "soft_gate"}, "staging": {"minibatches": 8}},
    ),
    "rloo": Row(
        "RLOO",
        "2402.14740",
        {
            "advantage": {"kind": "leave_one_out"},
            "clip": {"kind": "none"},
            "surrogate": {"kind": "reinforce"},
            "aggregate": "row_sum",
        },
    ),
}
