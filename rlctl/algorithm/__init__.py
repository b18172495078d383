"""The Algorithm row: what is decided before the gradient (`credit`, `weigh`) and inside it (`objective`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlctl.algorithm.admit import AnyAdmit, Everything
from rlctl.algorithm.advantage import AnyAdvantage, ZScore
from rlctl.algorithm.aggregate import Aggregate, token_weights
from rlctl.algorithm.clip import AnyClip, Fixed
from rlctl.algorithm.control import AnyControl
from rlctl.algorithm.control.probe import ProbeSpec
from rlctl.algorithm.correction import AnyCorrection, Correction, NoCorrection
from rlctl.algorithm.kl import Estimator, divergence
from rlctl.algorithm.presets import DEFAULT, PRESETS
from rlctl.algorithm.reweight import AnyReweight
from rlctl.algorithm.shaping import AnyShaping
from rlctl.algorithm.staging import Staging
from rlctl.algorithm.surrogate import AnySurrogate, Clipped
from rlctl.algorithm.veto import AnyVeto
from rlctl.spec import Seq, Spec, overlay

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import Batch, Credit, GroupStats
    from rlctl.types import Group


@dataclass(frozen=True)
class Objective:
    """What one forward pass is worth: loss = -(batch.weight_BT * gain_BT).sum()."""

    gain_BT: Tensor
    clipped_BT: Tensor  # bool: where the clip changed the gradient
    vetoed_BT: Tensor  # bool: left out of the gain
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
    veto: AnyVeto | None = Field(None, description="tokens of negative advantage left out of the gain")
    aggregate: Aggregate = Field("sequence", description="how the gains of tokens are averaged")
    kl: float = Field(0.0, ge=0, description="weight of the divergence from the reference; alias `beta`")
    kl_negative: float | None = Field(
        None, ge=0, description="that weight in rows of negative advantage; null: the same"
    )
    kl_estimator: Estimator = Field("k3", description="how that divergence is estimated")
    kl_aggregate: Aggregate | None = Field(
        None, description="how the divergence is averaged; null: as `aggregate`"
    )
    entropy_coef: float = Field(0.0, description="weight of the policy's entropy as a bonus")
    correction: AnyCorrection = Field(Correction(), description="repair of the engine's gap to the learner")
    staging: Staging = Field(Staging(), description="how often a step's rollouts are used")
    ratio_temperature: Literal["sampling", "one"] = Field(
        "sampling", description="of the log-probs in the ratio: the row's own, or 1"
    )
    probe: ProbeSpec | None = Field(None, description="samples drawn before a step, for controllers")
    control: Seq[AnyControl] = Field((), description="controllers, which keep a state")

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
        """What is computed beside the update: old_logp, ref_logp, entropy, entropy_t1, probe, logp_after."""
        stages = (*self.reweight, *self.control, *((self.veto,) if self.veto else ()))
        wanted = frozenset[str]().union(*(stage.needs for stage in stages))
        stale = {"old_logp"} if self.staging.stale else set()
        return wanted | stale | ({"ref_logp"} if self.restrained else set())

    @property
    def restrained(self) -> bool:
        """Whether the divergence from the reference takes part."""
        return self.kl > 0 or bool(self.kl_negative)

    @property
    def skips_zero_rows(self) -> bool:
        """Whether a row of advantage 0 has no gradient, so that its forward pass can be left out."""
        return self.surrogate.silent_at_zero and not self.restrained and self.entropy_coef == 0

    def without_correction(self) -> Algorithm:
        """Return the same row for an engine that is the learner's own program."""
        return self.model_copy(update={"correction": NoCorrection()})

    def pack(self, groups: Sequence[Group], stats: GroupStats) -> Batch:
        """Lay groups out as rows, at the temperature that ratios are formed at."""
        from rlctl.batch import pack

        batch = pack(groups, stats)
        if self.ratio_temperature == "sampling":
            return batch
        return batch.with_(temperature_B=batch.temperature_B.new_ones(len(batch)))

    def credit(self, stats: GroupStats) -> Credit:
        """Decide advantages and clip bounds, float64, P x G. A row not judged takes no part."""
        from rlctl.batch import Credit

        for shape in self.shaping:
            stats = shape(stats)
        advantage_PG = self.advantage(stats)
        factor_PG = advantage_PG.new_ones(advantage_PG.shape)
        for factor in self.reweight:
            factor_PG = factor_PG * factor(stats)
        advantage_PG = advantage_PG * factor_PG
        low_PG, high_PG, price_PG = self.clip(stats, advantage_PG)
        return Credit(
            advantage_PG,
            low_PG,
            high_PG,
            keep_PG=stats.keep_PG & ~stats.reward_PG.isnan(),
            price_PG=advantage_PG.new_zeros(advantage_PG.shape) if price_PG is None else price_PG,
            factor_PG=factor_PG if self.reweight else None,
        )

    def weigh(self, batch: Batch, max_length: int) -> Batch:
        """Fill `weight_BT` for one optimiser step: `batch` is the whole minibatch, zero rows included."""
        mask_BT, group_B = batch.mask_BT, batch.group_B
        weight_BT = token_weights(self.aggregate, mask_BT, group_B, max_length)
        if not self.restrained or self.kl_aggregate is None:
            return batch.with_(weight_BT=weight_BT)
        kl_weight_BT = token_weights(self.kl_aggregate, mask_BT, group_B, max_length)
        scale_BT = (kl_weight_BT / weight_BT).where(batch.mask_BT, 0.0)
        return batch.with_(weight_BT=weight_BT, kl_scale_BT=scale_BT)

    def objective(self, logp_BT: Tensor, entropy_BT: Tensor | None, batch: Batch) -> Objective:
        """Return the gain of every token; differentiable in `logp_BT` and `entropy_BT`.

        What stands where nothing is trained (NaN included) reaches neither a value nor a gradient.
        """
        mask_BT = batch.mask_BT
        logp_BT = logp_BT.where(mask_BT, 0.0)
        old_BT = logp_BT.detach() if batch.old_logp_BT is None else batch.old_logp_BT.where(mask_BT, 0.0)
        log_ratio_BT = (logp_BT - old_BT).clamp(-20, 20)  # exp of more has no use but overflow
        ratio_BT = self._ratio(log_ratio_BT, batch.length_B)
        gain_BT, clipped_BT = self.surrogate(ratio_BT, logp_BT, batch)
        gain_BT = gain_BT * self.correction(old_BT - batch.engine_logp_BT.where(mask_BT, 0.0))
        vetoed_BT = mask_BT & False
        if self.veto:
            factor_BT = self.veto(log_ratio_BT.detach(), batch)
            gain_BT, vetoed_BT = gain_BT * factor_BT, (factor_BT == 0) & mask_BT
        kl_BT = None
        if self.restrained:
            kl_BT = self._divergence(logp_BT, ratio_BT, batch)
            gain_BT = gain_BT - self._kl_weight(batch) * kl_BT
            kl_BT = kl_BT.detach()
        if self.entropy_coef:
            assert entropy_BT is not None, "entropy_coef needs entropy_BT"
            gain_BT = gain_BT + self.entropy_coef * entropy_BT.where(mask_BT, 0.0)
        return Objective(gain_BT.where(mask_BT, 0.0), clipped_BT & mask_BT & ~vetoed_BT, vetoed_BT, kl_BT)

    def _divergence(self, logp_BT: Tensor, ratio_BT: Tensor, batch: Batch) -> Tensor:
        assert batch.ref_logp_BT is not None, "kl > 0 needs ref_logp_BT"
        ref_BT = batch.ref_logp_BT.where(batch.mask_BT, 0.0)
        return divergence(self.kl_estimator, logp_BT, ref_BT, ratio_BT)

    def _kl_weight(self, batch: Batch) -> Tensor:
        """Weight of each token's divergence, in units of its weight in the loss."""
        weight_BT = batch.engine_logp_BT.new_full(batch.mask_BT.shape, self.kl)
        if self.kl_negative is not None:
            negative_B1 = batch.advantage_B[:, None] < 0
            weight_BT = weight_BT.masked_fill(negative_B1, self.kl_negative)
        return weight_BT if batch.kl_scale_BT is None else weight_BT * batch.kl_scale_BT

    def _ratio(self, log_ratio_BT: Tensor, length_B: Tensor) -> Tensor:
        """Form the ratio a token, or the geometric mean of a row's (2507.18071) at each of its tokens."""
        if self.level == "token":
            return log_ratio_BT.exp()
        mean_B1 = log_ratio_BT.sum(1, keepdim=True) / length_B[:, None].clamp(min=1)
        return mean_B1.exp().expand_as(log_ratio_BT)
