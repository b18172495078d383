import math
import threading
from collections import Counter
from itertools import pairwise

import pytest
import torch
from collecting import (
    LETTERS,
    SPEC,
    Forgetful,
    Supply,
    Watched,
    ambiguous_tokenizer,
    byte_tokenizer,
    collector,
    everything,
    fill,
    group,
    make_prompts,
    mixed,
    nothing,
)

from rlctl.algorithm import Algorithm
from rlctl.batch import GroupStats, pack
from rlctl.errors import Interrupted
from rlctl.evaluate import EvalSpec, evaluate
from rlctl.rollout import Rollout, Sampling, collapsed
from rlctl.types import Completion, Verdict

ONE = Supply(make_prompts(1))


def collect(engine, prompts, spec=SPEC, **options):
    return collector(engine, **options).collect(prompts, Sampling.of(spec), (1, 0), Rollout())


def packed(groups, longest):
    stats = GroupStats.of(groups, longest)
    return pack(groups, stats).credited(Algorithm.model_validate("grpo").credit(stats))


@pytest.mark.parametrize(("P", "G"), [(1, 2), (3, 4), (5, 8)])
def test_a03_requests_are_prompts_times_group_size(P, G):
    """A-03: one owner of the group size; every prompt is asked exactly G times."""
    engine, supply = Watched("yes"), Supply(make_prompts(P))
    spec = SPEC.model_copy(update={"prompts_per_step": P, "group_size": G})
    rollout = fill(collector(engine), supply.take, spec, 1, everything)
    assert len(engine.asked) == rollout.requests == P * G
    assert Counter(r.ids for r in engine.asked) == {p.ids: G for p in supply.prompts}
    assert [r.index for r in engine.asked] == list(range(P * G))
    assert all(len(g.samples) == G for g in rollout.groups)


def test_a03_refills_ask_for_what_is_missing_only():
    """A-03: a second round draws as many prompts as the first left open."""
    engine, supply = Watched(mixed), Supply(make_prompts(50))
    rollout = fill(
        collector(engine), supply.take, SPEC, 1, lambda groups: [g.prompt.uid != "toy:1" for g in groups]
    )
    assert len(supply.taken) == 4
    assert rollout.requests == len(engine.asked) == 4 * SPEC.group_size
    assert [g.prompt.uid for g in rollout.groups] == ["toy:0", "toy:2", "toy:3"]
    assert [g.prompt.uid for g in rollout.sampled] == ["toy:0", "toy:1", "toy:2", "toy:3"]
    assert rollout.refills == 1


def test_a13_every_seed_of_a_run_is_its_own():
    """A-13, A-02: a prompt drawn twice in a step, refills, evaluations of several sets and steps."""
    engine = Watched("yes")
    gathered = collector(engine)
    sets = {"one": make_prompts(2, "one"), "two": make_prompts(2, "two")}
    sampling = Sampling("eval", samples=4, temperature=1.0, max_tokens=16)
    for step in range(5):
        fill(gathered, ONE.take, SPEC, step, nothing)
        evaluate(sets, EvalSpec(pass_at=(1, 4)), gathered, sampling, step)
    training = 5 * (SPEC.max_refills + 1) * SPEC.prompts_per_step * SPEC.group_size
    assert len(engine.asked) == training + 5 * 2 * 2 * 4
    assert len({r.seed for r in engine.asked}) == len(engine.asked)


def test_seeds_depend_on_the_run_and_repeat_with_it():
    engines = [Watched("yes") for _ in range(3)]
    for engine, seed in zip(engines, (17, 17, 18), strict=True):
        fill(collector(engine, seed=seed), Supply(make_prompts(3)).take, SPEC, 1, everything)
    first, again, other = ([r.seed for r in engine.asked] for engine in engines)
    assert first == again
    assert not set(first) & set(other)


def test_b13_a_log_prob_that_is_no_number_drops_its_sample_and_is_counted():
    """B-13: NaN and inf from an engine reach neither a group nor a loss."""
    bad = {5: (math.nan,), 9: (-math.inf,)}

    def script(request):
        return Completion(request.index, (4,), bad[request.index], "stop") if request.index in bad else "yes"

    spec = SPEC.model_copy(update={"max_refills": 0})
    rollout = fill(collector(Watched(script)), Supply(make_prompts(3)).take, spec, 1, everything)
    assert rollout.failed_groups == 2 and len(rollout.groups) == 1
    assert all(math.isfinite(x) for g in rollout.groups for s in g.samples for x in s.completion.logps)


@pytest.mark.parametrize("engine", [Watched, Forgetful])
def test_a16_a_group_with_a_failed_request_is_dropped_whole(engine):
    """A-16: 1 of 8 requests fails: its group is never trained as one of 7; another prompt takes its place."""
    lost = []

    def script(request):
        if request.index == 3 and not lost:
            lost.append(request)
            return RuntimeError("out of memory")
        return "yes"

    spec = SPEC.model_copy(update={"group_size": 8, "prompts_per_step": 2})
    supply = Supply(make_prompts(9))
    rollout = fill(collector(engine(script)), supply.take, spec, 1, everything)
    assert [g.prompt.uid for g in rollout.groups] == ["toy:1", "toy:2"]
    assert all(len(g.samples) == 8 for g in rollout.sampled)
    assert rollout.metrics({})["rollout/groups_failed"] == 1
    assert rollout.tokens == 23 * 4  # "yes" and an EOS; the dropped group's other seven are paid for too
    assert rollout.sampled == rollout.groups


def test_a19_prompts_that_are_never_mixed_end_after_bounded_rounds():
    """A-19: nothing to train on is no error and no endless loop."""
    supply = Supply(make_prompts(2))
    algorithm = Algorithm.model_validate("dapo")
    rollout = fill(
        collector(Watched("no")),
        supply.take,
        SPEC,
        1,
        lambda groups: algorithm.admit(GroupStats.of(groups, 16)).tolist(),
    )
    rounds = SPEC.max_refills + 1
    assert rollout.groups == []
    assert len(supply.taken) == rounds * SPEC.prompts_per_step
    found = rollout.metrics({})
    assert found["rollout/groups_trained"] == 0
    assert found["rollout/groups"] == rounds * SPEC.prompts_per_step
    assert found["rollout/refills"] == SPEC.max_refills
    assert found["rollout/acr"] == 1.0
    assert rollout.tokens == found["rollout/requests"] * 3  # dropped groups are paid for


def test_a08_a09_rewards_that_are_missing_are_counted_and_left_out():
    """A-08, A-09: siblings' mean ignores a None, and no NaN comes out of it."""
    rollout = Rollout(
        sampled=[
            group(Verdict(1.0, True, "a"), Verdict(None, False), Verdict(0.0, False, "b")),
            group(Verdict(None, False), Verdict(None, False), Verdict(0.5, False, "c", error="broken")),
        ]
    )
    found = rollout.metrics({})
    assert found["rollout/not_judged"] == 3
    assert found["rollout/verifier_errors"] == 1
    assert found["reward/mean"] == pytest.approx(0.5)
    assert found["reward/std"] == pytest.approx(0.5)
    assert found["rollout/acr"] == 0.5  # the second group has one reward, so none that differ
    assert found["reward/correct"] == pytest.approx(1 / 6)
    assert found["rollout/unparseable_share"] == pytest.approx(0.5)


@pytest.mark.parametrize("sampled", [[], [group(Verdict(None, False), Verdict(None, False))]])
def test_a09_nothing_judged_gives_finite_metrics(sampled):
    """A-09."""
    assert all(math.isfinite(x) for x in Rollout(sampled=sampled).metrics({}).values())


def test_a07_equal_float_rewards_count_as_collapsed():
    """A-07: 0.1 + 0.2 is not 0.3."""
    assert collapsed(group(*[Verdict(r, False) for r in (0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3)]))
    assert not collapsed(group(Verdict(0.3, False), Verdict(0.3001, False)))


def test_metrics_by_hand():
    rollout = Rollout(
        sampled=[
            group(Verdict(1.0, True, "a"), Verdict(0.0, False), lengths=[3, 5], finish="length"),
            group(Verdict(1.0, True, "a"), Verdict(1.0, True, "a"), lengths=[1, 2]),
        ],
        requests=4,
        refills=2,
    )
    assert rollout.metrics({}) == {
        "rollout/groups": 2,
        "rollout/groups_trained": 0,
        "rollout/groups_failed": 0,
        "rollout/refills": 2,
        "rollout/requests": 4,
        "rollout/not_judged": 0,
        "rollout/verifier_errors": 0,
        "reward/mean": 0.75,
        "reward/std": 0.5,
        "reward/correct": 0.75,
        "rollout/acr": 0.5,
        "rollout/acr_effective": 0.5,
        "rollout/length_tokens": 11 / 4,
        "rollout/truncated_share": 0.5,
        "rollout/unparseable_share": 0.25,
    }


def test_b22_ids_reach_the_batch_as_they_were_sampled():
    """B-22: two id sequences that decode alike stay apart; nothing goes through text."""
    tokenizer = ambiguous_tokenizer()
    rows = [(0, 1, 3), (2, 3)]
    assert tokenizer.decode([0, 1]) == tokenizer.decode([2]) == "ab"
    engine = Watched(
        lambda r: Completion(r.index, rows[r.index], (-0.5,) * len(rows[r.index]), "stop"), tokenizer
    )
    spec = SPEC.model_copy(update={"group_size": 2})
    groups = collect(engine, make_prompts(1), spec, tokenizer=tokenizer)
    assert [s.text for s in groups[0].samples] == ["ab", "ab"]
    batch = packed(groups, 16)
    assert [tuple(t[m].tolist()) for t, m in zip(batch.tokens_BT, batch.mask_BT, strict=True)] == rows


def test_b19_nothing_is_appended_to_a_truncated_completion():
    """B-19: the trained ids are the engine's, with an EOS only where one was sampled."""
    spec = SPEC.model_copy(update={"group_size": 2, "max_completion_length": 4})
    groups = collect(Watched(lambda r: "maybe" if r.index else "yes"), make_prompts(1), spec)
    batch = packed(groups, 4)
    eos = LETTERS.eos_token_id
    yes, maybe = (LETTERS(word)["input_ids"] for word in ("yes", "maybe"))
    assert batch.tokens_BT.tolist() == [[*yes, eos], maybe[:4]]
    assert batch.mask_BT.all()


def test_b23_lengths_are_tokens_after_truncation():
    """B-23: text of several bytes a character, cut inside one; characters do not count."""
    spec = SPEC.model_copy(update={"max_completion_length": 5})
    tokenizer = byte_tokenizer()
    rollout = fill(
        collector(Watched("日本語", tokenizer), tokenizer=tokenizer),
        Supply(make_prompts(3)).take,
        spec,
        1,
        everything,
    )
    (text,) = {s.text for g in rollout.groups for s in g.samples}
    assert text.startswith("日")
    assert "本" not in text
    assert rollout.metrics({})["rollout/length_tokens"] == 5
    assert rollout.metrics({})["rollout/truncated_share"] == 1.0
    assert rollout.tokens == 5 * rollout.requests
    assert GroupStats.of(rollout.groups, 5).length_PG.unique().tolist() == [5]


def test_judging_overlaps_generation():
    """A verdict starts before the last completion is there: the engine waits for it."""
    judged, late = threading.Event(), []

    class Judge:
        def judge(self, prompt, text):
            judged.set()
            return Verdict(1.0, True)

    class Slow(Watched):
        def generate(self, requests):
            *first, last = super().generate(requests)
            yield from first
            late.append(judged.wait(timeout=30))
            yield last

    groups = collect(Slow("yes"), make_prompts(1), verifier=Judge())
    assert late == [True]
    assert len(groups[0].samples) == 4


def test_completions_in_any_order_find_their_prompt():
    class Turned(Watched):
        def generate(self, requests):
            return reversed(list(super().generate(requests)))

    groups = collect(Turned(lambda r: str(r.index)), make_prompts(3))
    assert [[s.text for s in g.samples] for g in groups] == [
        [str(p * 4 + g) for g in range(4)] for p in range(3)
    ]
    assert [g.prompt.uid for g in groups] == ["toy:0", "toy:1", "toy:2"]


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt, RuntimeError])
def test_what_breaks_the_engine_ends_the_step_and_waits_for_no_verdict(error):
    hold, started = threading.Event(), []

    class Judge:
        def judge(self, prompt, text):
            started.append(text)
            hold.wait(timeout=30)
            return Verdict(1.0, True)

    def script(request):
        if request.index == 30:
            raise error
        return "yes"

    gathered = collector(Watched(script), Judge())
    with pytest.raises(error):
        gathered.collect(make_prompts(8), Sampling.of(SPEC), (1, 0), Rollout())
    hold.set()
    gathered.threads.shutdown(wait=True)
    assert len(started) <= 4  # those that had a thread; the others were called off


def test_every_field_of_the_law_reaches_the_engine():
    spec = SPEC.model_copy(update={"temperature": 0.7, "top_p": 0.9, "top_k": 5, "stop": ("\n",)})
    engine = Watched("yes")
    groups = collect(engine, make_prompts(2), spec)
    assert {(r.temperature, r.top_p, r.top_k, r.stop, r.max_tokens) for r in engine.asked} == {
        (0.7, 0.9, 5, ("\n",), 16)
    }
    assert packed(groups, 16).temperature_B.tolist() == [0.7] * 8


def test_a11_a_question_asked_twice_with_different_golds_makes_two_groups():
    """A-11: grouped by place and uid, never by text."""
    first, second = make_prompts(1)[0], make_prompts(1, "other")[0]
    second = type(second)(second.uid, second.messages, "no", ids=second.ids)
    groups = collect(Watched("yes"), [first, second, first])
    assert [g.prompt.uid for g in groups] == ["toy:0", "other:0", "toy:0"]
    assert [[s.verdict.correct for s in g.samples] for g in groups] == [[True] * 4, [False] * 4, [True] * 4]
    assert packed(groups, 16).group_B.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_b26_no_column_of_a_batch_shares_its_memory():
    """B-26: what is written to one token or row stays there, in a batch of one group too."""
    for count in (1, 2):
        batch = packed(collect(Watched(mixed), make_prompts(count)), 16)
        batch = Algorithm.model_validate("grpo").weigh(batch, 16)
        columns = {n: c for n, c in vars(batch).items() if isinstance(c, torch.Tensor)}
        assert "weight_BT" in columns
        for name, column in columns.items():
            before = column.clone()
            column.view(-1)[0] = 1 - column.view(-1)[0].to(torch.int64)
            assert torch.equal(column.view(-1)[1:], before.view(-1)[1:]), name
        pairs = pairwise(sorted(c.data_ptr() for c in columns.values()))
        assert all(one != other for one, other in pairs)
