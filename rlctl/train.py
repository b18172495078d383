"""THE loop: build the parts, run steps, stop, report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl import checkpoint
from rlctl.budget import Budget
from rlctl.clock import Clock
from rlctl.errors import UserError
from rlctl.evaluate import evaluate
from rlctl.evaluate import metrics as eval_metrics
from rlctl.feed import Feed
from rlctl.interrupt import Stopper
from rlctl.logbook import Logbook
from rlctl.parts import Parts
from rlctl.recipe import Recipe
from rlctl.runfolder import RunFolder
from rlctl.seeds import derive_seed

if TYPE_CHECKING:
    from rlctl.batch import Batch, GroupStats
    from rlctl.learner.report import Report

Metrics = dict[str, Any]


class Run:
    """A run in its folder: from wherever it stands to the end of its budget."""

    def __init__(self, recipe: Recipe, folder: RunFolder, parts: Parts, stop: Stopper, log: Logbook) -> None:
        self.recipe = recipe
        self.folder = folder
        self.parts = parts
        self.stop = stop
        self.log = log
        self.budget = Budget(recipe.budget)
        self.reason: str | None = None
        self.pending: Metrics | None = {}  # numbers of a finished step that are not yet logged
        self.feed = Feed(parts, recipe.rollout, recipe.budget.steps, folder.path / "stage")
        self.settled = self._settled()  # at the end of the last finished step
        self.best: dict[str, float] = {}  # {"value", "step"} of checkpoint.best
        self.between_steps = True  # False while a step is neither undone nor done: no moment to save

    def go(self) -> str:
        """Run steps until something ends them; return the stop reason."""
        if self.pending is not None:
            self.finish(self.pending)
        while self.reason is None:
            self.finish(self.step())
        return self.reason

    def step(self) -> Metrics:
        """Sample, judge, give credit, update; return the step's numbers."""
        parts, algorithm = self.parts, self.parts.algorithm
        step, clock = self.budget.steps + 1, Clock()
        metrics: Metrics = {}
        advantages: dict[int, list[float]] = {}
        with self.stop.abandonable():
            harvest = self.feed.next(step, clock)
        rollout = harvest.rollout
        self.between_steps = False
        if harvest.batch:
            stats = self.feed.choices.stats(rollout.groups).scored(harvest.batch)
            stats = parts.controls.tune(stats, harvest.probe)
            credit = algorithm.credit(stats)
            batch = harvest.batch.credited(credit)
            with clock("sync"), parts.engine.resting():
                with clock("update"):
                    metrics |= self._optimise(batch, step).metrics() | credit.metrics()
                with clock("score"):
                    stats, moved = self._drift(stats, harvest.batch)
            parts.controls.observe(stats)
            metrics |= moved | parts.controls.metrics()
            advantages = dict(zip(map(id, rollout.groups), credit.advantage_PG.tolist(), strict=True))
        if step == self.feed.until:
            with clock("sync"):
                metrics |= parts.sync(step)
        self.budget.charge(rollout.tokens)
        self.settled = self._settled()
        self.log.rollouts(step, rollout.sampled, advantages)
        return {
            **rollout.metrics(advantages),
            **metrics,
            "train/staleness": step - harvest.began,
            "train/learning_rate": parts.learner.rate(step),
            "budget/tokens": self.budget.tokens,
            "time/generate_s": rollout.generate_s,
            "time/judge_s": rollout.judge_s,
            **clock.metrics(),
        }

    def finish(self, metrics: Metrics) -> None:
        """Evaluate, log and checkpoint a finished step as due, and see whether it was the last."""
        step, early = self.budget.steps, self.recipe.early_stop
        self.pending, self.between_steps = metrics, True
        nothing_learnt = metrics.get("rollout/groups_trained") == 0
        self.reason = self.budget.spent(inside_stage=step < self.feed.until) or (
            "no_signal" if nothing_learnt else None
        )
        evaluated = self.recipe.eval.due(step, last=self.reason is not None)
        if evaluated:
            metrics = metrics | self._evaluate(step)
        if self.reason is None and early is not None and early.reached(metrics):
            self.reason = "early_stop"
            if not evaluated and self.recipe.eval.due(step, last=True):
                metrics = metrics | self._evaluate(step)
        if metrics:
            self.log.step(step, metrics)
        self.pending = None
        if step and (
            self._improved(step, metrics) or self.reason or step % self.recipe.checkpoint.every == 0
        ):
            self.save()
        self.log.status("running", None, self.budget)

    def save(self) -> None:
        """Write a checkpoint of the last finished step, then let go of old ones."""
        state = {
            "step": self.budget.steps,
            "tokens": self.budget.tokens,
            "seconds": self.budget.seconds,
            **self.settled,
            "data": self.parts.source.fingerprint,
            "reference": self.parts.reference,
            "engine": self.parts.engine_kind,
            "pending": self.pending,
            "ended": self.reason if self.reason == "early_stop" else None,
            "best": self.best,
        }
        self.log.files.sync()
        root, spec = self.folder.checkpoints, self.recipe.checkpoint
        checkpoint.save(root, self.budget.steps, state, self.parts.learner.save)
        checkpoint.prune(root, spec.keep, protect=int(self.best["step"]) if self.best else None)
        self.feed.stage.forget(through=checkpoint.oldest(root, spec.keep))

    def restore(self, folder: Path) -> None:
        """Go on exactly from a checkpoint that `check_unchanged` let through."""
        state = checkpoint.state_of(folder)
        self.parts.learner.restore(folder)
        self.parts.sync(state["step"])
        self.parts.source.restore(state["source"])
        self.parts.controls.restore(state["control"])
        self.feed.until = state["stage"]
        self.settled = self._settled()
        self.budget.resume(state["step"], state["tokens"], state["seconds"])
        self.pending, self.best = state["pending"], state["best"]
        self.reason = self.budget.spent(state["step"] < state["stage"]) or state["ended"]
        self.log.rewind(state["step"], logged=self.pending is None)

    def _settled(self) -> dict[str, Any]:
        """Where prompts, controllers and the stage stand, as JSON."""
        parts = self.parts
        return {"source": parts.source.state(), "control": parts.controls.state(), "stage": self.feed.until}

    def _drift(self, stats: GroupStats, batch: Batch) -> tuple[GroupStats, Metrics]:
        """Measure how far the step moved the policy, mean of max(0, log-prob before - after), if asked."""
        if "logp_after" not in self.parts.algorithm.needs:
            return stats, {}
        after_PG = stats.scored(self.parts.learner.score(batch, frozenset({"old_logp"}))).logp_PG
        assert stats.logp_PG is not None and after_PG is not None
        stats = replace(stats, drift_PG=stats.logp_PG - after_PG)
        return stats, {"train/kl_step": stats.kl_step()}

    def _optimise(self, batch: Batch, step: int) -> Report:
        """Take the step's optimiser steps: `epochs` passes over `minibatches` parts of whole groups."""
        from rlctl.learner.report import Report

        algorithm, learner, report = self.parts.algorithm, self.parts.learner, Report()
        longest = self.recipe.rollout.max_completion_length
        for epoch in range(algorithm.staging.epochs):
            for index, minibatch in enumerate(batch.minibatches(algorithm.staging.minibatches)):
                update = learner.update(
                    algorithm.weigh(minibatch, longest),
                    algorithm.objective,
                    rate=learner.rate(step),
                    seed=derive_seed(self.recipe.seed, "dropout", step, epoch, index),
                    skip_zero_rows=algorithm.skips_zero_rows,
                    # Until the step's first update is made, nothing is lost by breaking off.
                    abandonable=None if report.grad_norms else self.stop.abandonable(),
                )
                report.add(update)
        return report

    def _evaluate(self, step: int) -> Metrics:
        started = time.monotonic()
        with self.stop.abandonable():
            parts = self.parts
            if step < self.feed.until:  # the engine still has the weights that the stage began with
                parts.sync(step)
            record = evaluate(parts.eval_sets, self.recipe.eval, parts.collector, parts.eval_sampling, step)
        self.log.evaluation(record)
        return eval_metrics(record) | {"time/eval_s": time.monotonic() - started}

    def _improved(self, step: int, metrics: Metrics) -> bool:
        """Say whether `checkpoint.best` reached a new high; the latest wins a tie."""
        value = metrics.get(self.recipe.checkpoint.best or "")
        if value is None or (self.best and value < self.best["value"]):
            return False
        self.best = {"value": value, "step": step}
        return True


def check_unchanged(folder: Path, parts: Parts, spec: checkpoint.CheckpointSpec) -> None:
    """Compare what a run is made of with the checkpoint in `folder`.

    Raises:
        UserError: the data, the reference model or the engine changed since.
    """
    state = checkpoint.state_of(folder)
    if state["data"] != parts.source.fingerprint and not spec.accept_changed_data:
        raise UserError(
            f"{folder}: the training data changed since this checkpoint was written",
            "put it back, or accept it with `--set checkpoint.accept_changed_data=true`",
            exit_code=1,
        )
    if state["reference"] != parts.reference:
        raise UserError(
            f"{folder}: the model that the run began with, its KL reference, is not the same any more",
            "put the model back, or begin another run with a different `name`",
            exit_code=1,
        )
    if state["engine"] != parts.engine_kind:
        raise UserError(
            f"{folder}: the run was sampled by {state['engine']} so far, now it would be {parts.engine_kind}",
            "install that engine again, or begin another run that names its `engine.kind`",
            exit_code=1,
        )
