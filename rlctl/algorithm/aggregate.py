"""How token gains are averaged into one loss, as a weight on every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Aggregate = Literal["token", "group", "sequence", "constant", "row_sum"]


def token_weights(aggregate: Aggregate, mask_BT: Tensor, group_B: Tensor, max_length: int) -> Tensor:
    """Weight of every trained token of one optimiser step, float64, 0 elsewhere; n rows have such tokens.

    * `token`: 1 / all trained tokens of the step (DAPO, 2503.14476)
    * `group`: 1 / (trained tokens of the group * groups), the mean over prompts (2606.07950's text)
    * `sequence`: 1 / (tokens of the row * n), the mean over rows of a mean over tokens (2402.03300)
    * `constant`: 1 / (n * max_length), free of the length that was sampled (Dr. GRPO, 2503.20783)
    * `row_sum`: 1 / n, the mean over rows of a sum over tokens (RLOO, 2402.14740)
    """
    weight_BT = mask_BT.double()
    length_B1 = weight_BT.sum(1, keepdim=True)
    n = (length_B1 > 0).sum().clamp(min=1)
    if aggregate == "token":
        return weight_BT / length_B1.sum().clamp(min=1)
    if aggregate == "group":
        same_BB = (group_B[:, None] == group_B).double()
        groups = len(set(group_B[length_B1[:, 0] > 0].tolist()))
        total_B1: Tensor = same_BB @ length_B1
        return weight_BT / (total_B1.clamp(min=1) * max(groups, 1))
    if aggregate == "sequence":
        return weight_BT / (length_B1.clamp(min=1) * n)
    return weight_BT / (n * (max_length if aggregate == "constant" else 1))
