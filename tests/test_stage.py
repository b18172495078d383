"""Collected steps on disk: what comes back is what went in, in every bit."""

import json
import math
from dataclasses import replace

import pytest
import torch
from collecting import make_prompts
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.probe import Probe
from rlctl.batch import GroupStats, pack
from rlctl.errors import RunError
from rlctl.rollout import COUNTS, Rollout
from rlctl.stage import SCORED, Harvest, Stage
from rlctl.types import Completion, Group, Sample, Verdict

PROMPTS = {prompt.uid: prompt for prompt in make_prompts(5)}


def lay_out(groups):
    return pack(groups, GroupStats.of(groups, 16))


def stage_in(folder):
    return Stage(folder / "stage", PROMPTS.__getitem__, lay_out)


def group(p, *samples):
    return Group(PROMPTS[f"toy:{p}"], tuple(samples))


def sample(index=0, ids=(3, 4), logps=(-0.1, -2.5e-300), text="ab", reward=1 / 3, temperature=0.7, **verdict):
    finish = verdict.pop("finish", "stop")
    judged = Verdict(reward, **({"correct": True} | verdict))
    return Sample(Completion(index, ids, logps, finish), text, judged, temperature)


def harvested(groups, sampled=None, probe=None, columns=SCORED, began=3, **counts):
    rollout = Rollout(groups=groups, sampled=sampled or groups, **counts)
    if not groups:
        return Harvest(rollout, None, probe, began)
    batch = lay_out(groups)
    drawn = torch.Generator().manual_seed(1)
    shape = batch.mask_BT.shape
    batch = batch.with_(
        **{name: torch.randn(shape, generator=drawn, dtype=torch.float64) * 1e-3 for name in columns}
    )
    return Harvest(rollout, batch, probe, began)


def same(one, other):
    """Equal in every bit: what is trained, what was sampled, what it took, what was scored."""
    assert one.began == other.began
    assert (one.rollout.groups, one.rollout.sampled) == (other.rollout.groups, other.rollout.sampled)
    assert [getattr(one.rollout, n) for n in COUNTS] == [getattr(other.rollout, n) for n in COUNTS]
    where = [
        [next(i for i, s in enumerate(h.rollout.sampled) if s is g) for g in h.rollout.groups]
        for h in (one, other)
    ]
    assert where[0] == where[1], "the trained groups are the very ones of `sampled`"
    assert (one.batch is None) == (other.batch is None)
    for mine, theirs in ((one.batch, other.batch), (one.probe, other.probe)):
        for name, value in vars(mine).items() if mine else ():
            found = getattr(theirs, name)
            if isinstance(value, torch.Tensor):
                assert value.dtype == found.dtype and torch.equal(value, found), name
            else:
                assert value == found, name
    assert (one.probe is None) == (other.probe is None)


FULL = [
    group(0, sample(0), sample(1, ids=(5,), logps=(-0.0,), finish="length")),
    group(
        1,
        sample(2, reward=None, correct=False, error="broken\nverifier", parts={}),
        sample(3, answer="½", parts={"exact": 0.1 + 0.2, "format": -1e-17}),
    ),
    group(0, sample(4, ids=(), logps=(), text="", correct=False), sample(5, text="\ud800 \x00\u2028 \"'")),
]
PROBE = Probe(*(torch.tensor([1 / 3, 0.0, 1e-300], dtype=torch.float64) * k for k in (1, 2, 3)))


def test_d05_a_step_comes_back_in_every_bit(tmp_path):
    """D-05: text of any kind, equal groups of one prompt, verdict parts, tokens, log-probs, the probe."""
    stage = stage_in(tmp_path)
    kept = harvested(
        FULL,
        sampled=[*FULL, group(2, sample(6), sample(7, correct=False))],
        probe=PROBE,
        tokens=77,
        requests=8,
        failed_groups=1,
        refills=2,
        generate_s=0.1 + 0.2,
        judge_s=1e-9,
    )
    stage.write(5, kept)
    same(stage.read(5), kept)
    same(stage_in(tmp_path).read(5), kept)  # by another session
    assert stage.read(5).rollout.metrics({}) == kept.rollout.metrics({})
    assert sorted(p.name for p in (tmp_path / "stage").iterdir()) == [
        "step-000005.json",
        "step-000005.safetensors",
    ]


@pytest.mark.parametrize("columns", [(), ("old_logp_BT",), ("ref_logp_BT", "entropy_t1_BT")])
def test_only_what_was_scored_comes_back(tmp_path, columns):
    stage = stage_in(tmp_path)
    kept = harvested(FULL, columns=columns)
    stage.write(1, kept)
    same(stage.read(1), kept)
    assert [name for name in SCORED if getattr(stage.read(1).batch, name) is not None] == list(columns)


def test_a_step_without_a_trained_group(tmp_path):
    """Nothing was admitted: there is no batch, but what was refused is there to be logged."""
    stage = stage_in(tmp_path)
    kept = harvested([], sampled=FULL, tokens=9)
    stage.write(2, kept)
    same(stage.read(2), kept)
    assert stage.read(2).batch is None


def test_refused_groups_stay_refused(tmp_path):
    """Trained is who was trained, also where a refused group looks the same."""
    twin = replace(FULL[0])
    stage = stage_in(tmp_path)
    stage.write(1, harvested([twin], sampled=[FULL[0], twin, FULL[1]]))
    found = stage.read(1).rollout
    assert [any(s is g for g in found.groups) for s in found.sampled] == [False, True, False]


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LOGPS = st.lists(st.floats(max_value=0, allow_nan=False, allow_infinity=False), min_size=1, max_size=4)
PARTS = st.dictionaries(st.text(max_size=3), FLOATS, max_size=2)


DRAWN = st.tuples(LOGPS, st.text(max_size=5), st.none() | FLOATS, PARTS, st.floats(0.1, 2))


@given(st.lists(DRAWN, min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_any_numbers_and_texts(tmp_path_factory, drawn):
    samples = [
        sample(i, tuple(range(len(logps))), tuple(logps), text, reward, heat, parts=parts)
        for i, (logps, text, reward, parts, heat) in enumerate(drawn)
    ]
    stage = stage_in(tmp_path_factory.mktemp("any"))
    kept = harvested([group(0, *samples)])
    stage.write(1, kept)
    same(stage.read(1), kept)
    found = stage.read(1).rollout.groups[0].samples[0].completion.logps
    assert json.dumps(found) == json.dumps(drawn[0][0])  # -0.0 is not 0.0


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("harm", ["gone", "empty", "half", "noise"])
def test_d09_a_damaged_step_is_said_in_two_lines(tmp_path, suffix, harm):
    """D-09: which file, and what to do."""
    stage = stage_in(tmp_path)
    stage.write(4, harvested(FULL))
    file = tmp_path / "stage" / f"step-000004.{suffix}"
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "half": content[: len(content) // 2], "noise": b"\xff" * 99}[harm])
    with pytest.raises(RunError) as caught:
        stage.read(4)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and caught.value.exit_code == 1
    assert "stage/step-000004" in lines[0] and "step 4" in lines[0]
    assert "delete the checkpoints" in lines[1]


@pytest.mark.parametrize("change", ["gone", "another text"])
def test_a_question_that_changed_is_said_too(tmp_path, change):
    """The data may have changed, where `accept_changed_data` allows it; old answers fit no new question."""
    stage = stage_in(tmp_path)
    stage.write(4, harvested(FULL))
    now = {uid: replace(prompt, ids=(*prompt.ids, 1)) for uid, prompt in PROMPTS.items()}
    prompts = {} if change == "gone" else now
    with pytest.raises(RunError, match="toy:0") as caught:
        Stage(tmp_path / "stage", prompts.__getitem__, lay_out).read(4)
    assert len(str(caught.value).splitlines()) == 2


def test_no_room_is_said(tmp_path):
    (tmp_path / "stage").write_text("a file")
    with pytest.raises(RunError, match="could not be written") as caught:
        stage_in(tmp_path).write(1, harvested(FULL))
    assert len(str(caught.value).splitlines()) == 2


def test_a_step_collected_again_replaces_the_first(tmp_path):
    stage = stage_in(tmp_path)
    stage.write(1, harvested(FULL))
    kept = harvested(FULL[:1], columns=("old_logp_BT",), tokens=3)
    stage.write(1, kept)
    same(stage.read(1), kept)


def test_what_is_spent_is_forgotten(tmp_path):
    stage = stage_in(tmp_path)
    for step in (9, 10, 11, 100):
        stage.write(step, harvested(FULL))
    stage.forget(through=10)
    stems = {p.stem for p in (tmp_path / "stage").iterdir()}
    assert stems == {"step-000011", "step-000100"}
    stage.forget(through=0)
    assert stage.read(11).batch is not None
    stage.forget(through=100)
    assert not (tmp_path / "stage").exists()
    stage.forget(through=100)  # a run that never collected ahead
    stage.write(101, harvested(FULL))
    assert math.isfinite(float(stage.read(101).batch.old_logp_BT.sum()))
