"""The Algorithm row: what is decided before the gradient (`credit`, `weigh`) and inside it (`objective`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlctl.algorithm.admit import AnyAdmit, Everything
from rlctl.algorithm.advantage import AnyAdvantage, ZScore
from rlctl.algorithm.aggregate import Aggregate, token_weights
from rlctl.algorithm.clip import AnyClip, Fixed
from rlctl.algorithm.correction import AnyCorrection, Correction, NoCorrection
from rlctl.algorithm.kl import Estimator, divergence
from rlctl.algorithm.presets import DEFAULT, PRESETS
from rlctl.algorithm.reweight import AnyReweight
from rlctl.algorithm.shaping import AnyShaping
from rlctl.algorithm.staging import Staging
from rlctl.algorithm.surrogate import AnySurrogate, Clipped
from rlctl.spec import Seq, Spec, overlay

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import Batch, Credit, GroupStats


@dataclass(frozen=True)
class Objective:
    """What one forward pass is worth: loss = -(batch.weight_BT * gain_BT).sum()."""

    gain_BT: Tensor
    clipped_BT: Tensor  # bool: where the clip changed the gradient
    kl_BT: Tensor | None  # detached estimate against the reference, if it takes part


class Algorithm(Spec):
    """A row of stages. `preset` names the row that fills what is not given; a bare name is enough."""

    preset: str = Field(DEFAULT, description="the row of the table that fills the other fields")
    shaping: Seq[AnyShaping] = Field((), description="changes of the reward before the advantage, in order")
    admit: AnyAdmit = Field(Everything(), description="which groups are trained")
    advantage: AnyAdvantage = Field(ZScore(), description="from a group's rewards to advantages")
    reweight: Seq[AnyReweight] = Field((), description="factors on a prompt's advantages, in order")
    level: Literal["token", "sequence"] = Field("token", description="where the ratio is formed")
    clip: AnyClip = Field(Fixed(), description="bounds of the ratio, as distances from 1")
    surrogate: AnySurrogate = Field(Clipped(), description="what the update raises, token by token")
    veto: None = Field(None, description="tokens left out of the loss; null is the only choice for now")
    aggregate: Aggregate = Field("sequence", description="how the gains of tokens are averaged")
    kl: float = Field(0.0, ge=0, description="weight of the divergence from the reference; alias `beta`")
    kl_estimator: Estimator = Field("k3", description="how that divergence is estimated")
    entropy_coef: float = Field(0.0, description="weight of the policy's entropy as a bonus")
    correction: AnyCorrection = Field(Correction(), description="repair of the engine's gap to the learner")
    staging: Staging = Field(Staging(), description="how often a step's rollouts are used")
    probe: None = Field(None, description="samples drawn before a step; null is the only choice for now")
    control: Annotated[tuple[()], Field(strict=False)] = Field(
        (), description="controllers that keep state; empty for now"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: Any) -> Any:
        """Lay what is given over the preset's row, and that over the defaults."""
        given = {"preset": given} if isinstance(given, str) else given
        if not isinstance(given, Mapping):
            return given
        row = PRESETS.get(str(given.get("preset", DEFAULT)))
        if row is None:
            return given
        defaults = cls.model_construct().model_dump()
        return overlay(overlay(defaults, row.stages), given)

    @field_validator("preset")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in PRESETS:
            near = get_close_matches(name, PRESETS, n=1, cutoff=0.4)
            raise ValueError(
                f"no algorithm is called {name!r}; "
                + (f"the nearest is {near[0]!r}" if near else f"there are {', '.join(PRESETS)}")
            )
        return name

    @model_validator(mode="after")
    def _level_fits_aggregate(self) -> Self:
        if self.level == "sequence" and self.aggregate != "sequence":
            raise ValueError(
                f"`level: sequence` forms one ratio a row, so rows must weigh the same: it needs "
                f"`aggregate: sequence`, not `{self.aggregate}`"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        """What must be computed beside the policy's log-probs: old_logp, ref_logp, entropy."""
        wanted = {
            "old_logp": self.staging.updates > 1,
            "ref_logp": self.kl > 0,
            "entropy": self.entropy_coef != 0,
        }
        return frozenset(name for name, needed in wanted.items() if needed)

    @property
    def skips_zero_rows(self) -> bool:
        """Whether a row of advantage 0 has no gradient, so that its forward pass can be left out."""
        return self.kl == 0 and self.entropy_coef == 0

    def without_correction(self) -> Algorithm:
        """Return the same row for an engine that is the learner's own program."""
        return self.model_copy(update={"correction": NoCorrection()})

    def credit(self, stats: GroupStats) -> Credit:
        """Decide advantages and clip bounds, float64, P x G. A row not judged takes no part."""
        from rlctl.batch import Credit

        for shape in self.shaping:
            stats = shape(stats)
        advantage_PG = self.advantage(stats.reward_PG)
        for factor in self.reweight:
            advantage_PG = advantage_PG * factor(stats)
        low_PG, high_PG = self.clip(stats)
        return Credit(advantage_PG, low_PG, high_PG, keep_PG=stats.keep_PG & ~stats.reward_PG.isnan())

    def weigh(self, batch: Batch, max_length: int) -> Batch:
        """Fill `weight_BT` for one optimiser step: `batch` is the whole minibatch, zero rows included."""
        return batch.with_(weight_BT=token_weights(self.aggregate, batch.mask_BT, max_length))

    def objective(self, logp_BT: Tensor, entropy_BT: Tensor | None, batch: Batch) -> Objective:
        """Return the gain of every token; differentiable in `logp_BT` and `entropy_BT`.

        What stands where nothing is trained (NaN included) reaches neither a value nor a gradient.
        """
        mask_BT = batch.mask_BT
        logp_BT = logp_BT.where(mask_BT, 0.0)
        old_BT = logp_BT.detach() if batch.old_logp_BT is None else batch.old_logp_BT.where(mask_BT, 0.0)
        ratio_BT = self._ratio(logp_BT - old_BT, batch.length_B)
        gain_BT, clipped_BT = self.surrogate(ratio_BT, logp_BT, batch)
        gain_BT = gain_BT * self.correction(old_BT - batch.engine_logp_BT.where(mask_BT, 0.0))
        kl_BT = None
        if self.kl > 0:
            assert batch.ref_logp_BT is not None, "kl > 0 needs ref_logp_BT"
            ref_BT = batch.ref_logp_BT.where(mask_BT, 0.0)
            kl_BT = divergence(self.kl_estimator, logp_BT, ref_BT, ratio_BT)
            gain_BT = gain_BT - self.kl * kl_BT
            kl_BT = kl_BT.detach()
        if self.entropy_coef:
            assert entropy_BT is not None, "entropy_coef needs entropy_BT"
            gain_BT = gain_BT + self.entropy_coef * entropy_BT.where(mask_BT, 0.0)
        return Objective(gain_BT.where(mask_BT, 0.0), clipped_BT & mask_BT, kl_BT)

    def _ratio(self, log_ratio_BT: Tensor, length_B: Tensor) -> Tensor:
        """Form the ratio a token, or the geometric mean of a row's (2507.18071) at each of its tokens."""
        log_ratio_BT = log_ratio_BT.clamp(-20, 20)  # exp of more has no use but overflow
        if self.level == "token":
            return log_ratio_BT.exp()
        mean_B1 = log_ratio_BT.sum(1, keepdim=True) / length_B[:, None].clamp(min=1)
        return mean_B1.exp().expand_as(log_ratio_BT)
