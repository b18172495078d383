"""Every random draw of a run comes from a seed that says what it is for."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on every part and on their order.

    A completion's parts are: run seed, purpose (train, probe, eval), step, index of the group
    in the step, refill round, sample. So no two completions of a run share a seed.
    """
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
