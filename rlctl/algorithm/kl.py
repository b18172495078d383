"""Estimates of the divergence from the reference policy, one number a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Estimator = Literal["k1", "k2", "k3", "k3_ratio"]


def divergence(estimator: Estimator, logp_BT: Tensor, ref_logp_BT: Tensor, ratio_BT: Tensor) -> Tensor:
    """Estimate KL(policy || reference) with d = ref - logp; the gradient flows.

    * `k1`: -d
    * `k2`: d^2 / 2
    * `k3`: exp(d) - d - 1, with d held in [-10, 10]
    * `k3_ratio`: k3 times the ratio of new to old probability
    """
    d_BT = ref_logp_BT - logp_BT
    if estimator == "k1":
        return -d_BT
    if estimator == "k2":
        return d_BT.square() / 2
    d_BT = d_BT.clamp(-10, 10)
    k3_BT = d_BT.exp() - d_BT - 1
    return k3_BT * ratio_BT if estimator == "k3_ratio" else k3_BT
