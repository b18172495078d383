"""Prompts -> completions -> verdicts -> groups, with admission and bounded refill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Protocol

from pydantic import AliasChoices, Field

from rlctl.algorithm import moments
from rlctl.seeds import derive_seed
from rlctl.spec import Seq, Spec
from rlctl.types import Completion, Engine, Group, Prompt, Request, Sample, Verdict, Verifier


class RolloutSpec(Spec):
    """Section `rollout`: what is sampled for one step."""

    group_size: int = Field(8, ge=1, validation_alias=AliasChoices("group_size", "num_generations"))
    prompts_per_step: int = Field(16, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)  # null: off
    stop: Seq[str] = ()
    max_completion_length: int = Field(1024, ge=1)  # tokens
    max_refills: int = Field(4, ge=0)  # rounds, for algorithms that admit only some groups


@dataclass(frozen=True)
class Sampling:
    """How completions of one purpose are drawn."""

    purpose: str  # train, probe, eval: part of every seed
    samples: int  # a prompt
    temperature: float
    max_tokens: int
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: RolloutSpec) -> Sampling:
        """Read the training law off a recipe."""
        return cls(
            purpose="train",
            samples=spec.group_size,
            temperature=spec.temperature,
            max_tokens=spec.max_completion_length,
            top_p=spec.top_p,
            top_k=spec.top_k,
            stop=spec.stop,
        )

    def request(self, index: int, prompt: Prompt, seed: int, temperature: float) -> Request:
        """Ask for one completion of a prompt under this law."""
        return Request(
            index=index,
            ids=prompt.ids,
            seed=seed,
            max_tokens=self.max_tokens,
            temperature=temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
        )


COUNTS = ("tokens", "requests", "failed_groups", "refills", "generate_s", "judge_s")


@dataclass
class Rollout:
    """What one step sampled: `groups` to train on, `sampled` with the refused ones too."""

    groups: list[Group] = field(default_factory=list)
    sampled: list[Group] = field(default_factory=list)
    probes: list[Group] = field(default_factory=list)  # one for each of `groups`, if a probe is drawn
    tokens: int = 0  # generated, dropped groups and probes included
    requests: int = 0
    failed_groups: int = 0  # an engine gave up one of their completions
    refills: int = 0
    generate_s: float = 0.0
    judge_s: float = 0.0  # waited for verdicts after the last completion

    def steps(self, prompts_per_step: int) -> list[Rollout]:
        """Cut into one rollout a step, each with the groups that were refused on its way.

        What the sampling took, in tokens and seconds, stays with the first.
        """
        first = replace(self, groups=[], sampled=[], probes=[])
        cut = [first]
        trained = {id(group): number for number, group in enumerate(self.groups)}
        for group in self.sampled:
            if len(cut[-1].groups) == prompts_per_step and id(group) in trained:
                cut.append(Rollout())
            cut[-1].sampled.append(group)
            if id(group) in trained:
                cut[-1].groups.append(group)
                cut[-1].probes += self.probes[trained[id(group)] :][:1]
        return cut

    def pay_for(self, other: Rollout) -> None:
        """Take over what another sampling took, in tokens and seconds."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)

    def metrics(self, advantages: Mapping[int, Sequence[float]]) -> dict[str, float]:
        """Return what is shown of a step's sampling, refused groups included.

        `advantages` by id of the trained groups: a collapsed group that has any counts as repaired.
        """
        samples = [sample for group in self.sampled for sample in group.samples]
        rewards = [s.verdict.reward for s in samples if s.verdict.reward is not None]
        counts = {
            "rollout/groups": len(self.sampled),
            "rollout/groups_trained": len(self.groups),
            "rollout/groups_failed": self.failed_groups,
            "rollout/refills": self.refills,
            "rollout/requests": self.requests,
            "rollout/not_judged": len(samples) - len(rewards),
            "rollout/verifier_errors": sum(s.verdict.error is not None for s in samples),
        }
        if not samples:
            return dict(counts)
        return counts | {
            "reward/mean": fmean(rewards) if rewards else 0.0,
            "reward/std": stdev(rewards) if len(rewards) > 1 else 0.0,
            "reward/correct": fmean(s.verdict.correct for s in samples),
            "rollout/acr": fmean(collapsed(group) for group in self.sampled),
            "rollout/acr_effective": fmean(
                collapsed(group) and not any(advantages.get(id(group), ())) for group in self.sampled
            ),
            "rollout/length_tokens": fmean(len(s.completion.ids) for s in samples),
            "rollout/truncated_share": fmean(s.completion.finish == "length" for s in samples),
            "rollout/unparseable_share": fmean(s.verdict.answer is None for s in samples),
        }


def collapsed(group: Group) -> bool:
    """Say whether the verifier's rewards of a group do not differ (std < 1e-6): it teaches nothing."""
    rewards = [s.verdict.reward for s in group.samples if s.verdict.reward is not None]
    return len(rewards) < 2 or stdev(rewards) < moments.COLLAPSE_STD


GIVEN_UP = Verdict(None, correct=False, error="the engine gave up this completion")


class Choices(Protocol):
    """What an algorithm decides while a step is sampled."""

    probe_samples: int  # drawn a prompt before its temperature is chosen; 0: none

    def prompts(self, n: int) -> list[Prompt]:
        """Choose the next `n` prompts."""

    def temperatures(self, prompts: int, probes: Sequence[Group]) -> Sequence[Sequence[float]] | None:
        """Choose a temperature for every sample of every prompt; None: the recipe's for all."""

    def admit(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Say which groups are trained on."""


class Collector:
    """Samples and judges groups.

    Args:
        engine: yields completions as they finish.
        verifier: judges them in threads while others are still sampled.
        decode: token ids to text.
        seed: of the run.
    """

    def __init__(
        self, engine: Engine, verifier: Verifier, decode: Callable[[Sequence[int]], str], *, seed: int
    ) -> None:
        self.engine = engine
        self.verifier = verifier
        self.decode = decode
        self.seed = seed
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="judge")

    def fill(self, policy: Choices, sampling: Sampling, step: int, wanted: int, refills: int) -> Rollout:
        """Sample until `wanted` groups are admitted or the refills are used up."""
        rollout = Rollout()
        for refill in range(refills + 1):
            prompts, when = policy.prompts(wanted - len(rollout.groups)), (step, refill)
            probes = self._probe(policy, prompts, sampling, when, rollout)
            temperatures = policy.temperatures(len(prompts), probes)
            asked = self.collect(prompts, sampling, when, rollout, temperatures)
            kept = [index for index, group in enumerate(asked) if _whole(group)]
            groups = [asked[index] for index in kept]
            rollout.failed_groups += len(prompts) - len(groups)
            rollout.sampled += groups
            for index, group, good in zip(kept, groups, policy.admit(groups), strict=True):
                if good:
                    rollout.groups.append(group)
                    rollout.probes += probes[index : index + 1]
            rollout.refills = refill
            if len(rollout.groups) == wanted:
                break
        return rollout

    def _probe(
        self,
        policy: Choices,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        when: tuple[int, int],
        rollout: Rollout,
    ) -> list[Group]:
        if not policy.probe_samples:
            return []
        probing = replace(sampling, purpose="probe", samples=policy.probe_samples)
        return self.collect(prompts, probing, when, rollout)

    def collect(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        when: tuple[int, int],
        rollout: Rollout,
        temperatures: Sequence[Sequence[float]] | None = None,
    ) -> list[Group]:
        """Return one judged group a prompt, at (step, refill), and count what it took in `rollout`.

        `temperatures` has a number for every sample of every prompt, where they differ. A completion
        that the engine gave up, or with a log-prob that is no number, is not judged: its sample is
        empty, finish `error`, and wrong.
        """
        requests = self._requests(prompts, sampling, when, temperatures)
        started = time.monotonic()
        judged: dict[int, tuple[Completion, str, Future[Verdict]]] = {}
        try:
            for completion in self.engine.generate(requests):
                if given_up(completion):
                    continue
                text = self.decode(completion.ids)
                prompt = prompts[completion.index // sampling.samples]
                judged[completion.index] = (
                    completion,
                    text,
                    self.threads.submit(self.verifier.judge, prompt, text),
                )
            generated = time.monotonic()
            samples = {
                index: Sample(completion, text, verdict.result(), requests[index].temperature)
                for index, (completion, text, verdict) in judged.items()
            }
        except BaseException:
            for _, _, verdict in judged.values():
                verdict.cancel()
            raise
        rollout.generate_s += generated - started
        rollout.judge_s += time.monotonic() - generated
        rollout.requests += len(requests)
        rollout.tokens += sum(len(s.completion.ids) for s in samples.values())
        row = [
            samples.get(r.index) or Sample(Completion(r.index, (), (), "error"), "", GIVEN_UP, r.temperature)
            for r in requests
        ]
        G = sampling.samples
        return [Group(prompt, tuple(row[p * G : (p + 1) * G])) for p, prompt in enumerate(prompts)]

    def close(self) -> None:
        """Stop the threads; verdicts under way are waited for by no one."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _requests(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        when: tuple[int, int],
        temperatures: Sequence[Sequence[float]] | None,
    ) -> list[Request]:
        step, refill = when
        return [
            sampling.request(
                p * sampling.samples + g,
                prompt,
                seed=derive_seed(self.seed, sampling.purpose, step, p, refill, g),
                temperature=temperatures[p][g] if temperatures else sampling.temperature,
            )
            for p, prompt in enumerate(prompts)
            for g in range(sampling.samples)
        ]


def given_up(completion: Completion) -> bool:
    """Say whether the engine gave a completion up: by its own word, or with a log-prob that is no number."""
    return completion.finish == "error" or not all(map(math.isfinite, completion.logps))


def _whole(group: Group) -> bool:
    return all(s.completion.finish != "error" for s in group.samples)
