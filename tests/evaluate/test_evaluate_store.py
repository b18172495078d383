"""Generations on disk: whatever ended an evaluation, its file becomes the one of an evaluation left alone."""

import json
import math
from dataclasses import replace
from itertools import product

import pytest
from collecting import LETTERS, Forgetful, Watched, llama_engine, make_prompts
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.evaluate import store
from rlctl.evaluate.store import Generations
from rlctl.rollout import Sampling
from rlctl.types import Completion

PROMPTS = make_prompts(5)
LAW = Sampling("eval", samples=4, temperature=1.0, max_tokens=6)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(store, "BLOCK", 8)


def decode(ids):
    return LETTERS.decode(list(ids), skip_special_tokens=True)


def fill(path, engine, samples=4, prompts=PROMPTS, law=LAW, seed=17):
    told = []
    stored = Generations(path, prompts, replace(law, samples=samples), seed)
    stored.fill(engine, decode, told.append)
    return list(stored.rows()), told


@pytest.fixture(scope="module")
def engine():
    return llama_engine(3)


@pytest.fixture(scope="module")
def whole(engine, tmp_path_factory):
    """The bytes of an evaluation left alone, and where its lines end."""
    path = tmp_path_factory.mktemp("whole") / "generations.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "BLOCK", 8)
        fill(path, engine)
    return path.read_bytes()


def test_e09_every_sample_of_every_problem_once(engine, tmp_path):
    """E-09: 20 samples in blocks of 8, computed 3 at a time; the last block is short."""
    rows, told = fill(tmp_path / "g.jsonl", engine)
    assert sorted((row["uid"], row["sample"]) for row in rows) == sorted(
        product((p.uid for p in PROMPTS), range(4))
    )
    assert told == [8, 16, 20]
    assert len({row["seed"] for row in rows}) == 20
    assert {row["set"] for row in rows} == {"toy"}
    assert all(row["tokens"] <= 6 and row["finish"] in ("stop", "length") for row in rows)


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_seeds_do_not_depend_on_blocks(block, engine, whole, tmp_path, monkeypatch):
    """Nor do the responses, but for the rounding of a batch: here there is none that shows."""
    monkeypatch.setattr(store, "BLOCK", block)
    rows, _ = fill(tmp_path / "g.jsonl", engine)

    def by_place(rows):
        return sorted((row["uid"], row["sample"], row["seed"], row["response"]) for row in rows)

    assert by_place(rows) == by_place(map(json.loads, whole.splitlines()))


def test_seeds_depend_on_the_problem_and_not_on_its_place(engine, whole, tmp_path):
    rows, _ = fill(tmp_path / "g.jsonl", engine, prompts=PROMPTS[:1:-1])
    known = {(row["uid"], row["sample"]): row["seed"] for row in map(json.loads, whole.splitlines())}
    assert all(row["seed"] == known[row["uid"], row["sample"]] for row in rows)
    others, _ = fill(tmp_path / "other.jsonl", engine, seed=18)
    assert not {row["seed"] for row in others} & set(known.values())


@settings(max_examples=25, deadline=None)
@given(cut=st.floats(0, 1))
def test_e13_cut_off_anywhere_and_resumed(cut, engine, whole, tmp_path_factory):
    """E-13: at any byte; the file is then that of an evaluation left alone."""
    path = tmp_path_factory.mktemp("cut") / "generations.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "BLOCK", 8)
        path.write_bytes(whole[: round(cut * len(whole))])
        fill(path, engine)
    assert path.read_bytes() == whole


def test_e13_cut_off_right_before_the_end_of_a_line(engine, whole, tmp_path):
    """E-13: such a line is complete JSON, and yet the next block must not be joined to it."""
    path = tmp_path / "g.jsonl"
    for lines in (8, 11, 20):
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:lines])[:-1])
        fill(path, engine)
        assert path.read_bytes() == whole


def test_whole_blocks_are_kept_and_a_partial_one_is_redone(whole, tmp_path):
    path = tmp_path / "g.jsonl"
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:13]))
    watched = Watched("yes")
    rows, told = fill(path, watched)
    assert len(watched.asked) == 20 - 8
    assert told == [16, 20]
    assert [row["response"] for row in rows[8:]] == ["yes"] * 12


def test_a_block_of_zeros_after_a_crash_is_redone(engine, whole, tmp_path):
    path = tmp_path / "g.jsonl"
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:9], b"\0" * len(lines[9]), *lines[10:]]))
    fill(path, engine)
    assert path.read_bytes() == whole


def test_more_samples_later(engine, whole, tmp_path):
    """As if they had been asked at once; fewer need no engine."""
    path, other = tmp_path / "g.jsonl", tmp_path / "at once.jsonl"
    path.write_bytes(whole)
    more, told = fill(path, engine, samples=9)
    at_once, _ = fill(other, engine, samples=9)
    assert told[0] == 24
    assert more == at_once
    assert path.read_bytes() == other.read_bytes()
    fewer, told = fill(path, None, samples=2)
    assert told == []
    assert sorted((row["uid"], row["sample"]) for row in fewer) == sorted(
        product((p.uid for p in PROMPTS), range(2))
    )
    assert path.read_bytes() == other.read_bytes()


def test_fewer_samples_of_a_torn_file_are_all_there_or_drawn(whole, tmp_path):
    """A file torn inside a block does not pass for a whole one of fewer samples."""
    for lines in range(21):
        path = tmp_path / f"{lines}.jsonl"
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:lines]))
        rows, _ = fill(path, Watched("yes"), samples=2)
        assert sorted((row["uid"], row["sample"]) for row in rows) == sorted(
            product((p.uid for p in PROMPTS), range(2))
        )


def test_e10_the_whole_law_reaches_the_engine(tmp_path):
    """E-10: nothing is left to an engine's own defaults."""
    law = Sampling("eval", 2, 0.6, 5, top_p=0.9, top_k=7, stop=("!",))
    watched = Watched("yes")
    fill(tmp_path / "g.jsonl", watched, samples=2, law=law)
    assert {(r.temperature, r.max_tokens, r.top_p, r.top_k, r.stop) for r in watched.asked} == {
        (0.6, 5, 0.9, 7, ("!",))
    }
    assert {r.ids for r in watched.asked} == {p.ids for p in PROMPTS}


@pytest.mark.parametrize("engine_of", [Watched, Forgetful])
def test_e12_a_lost_sample_stays_in_the_file(engine_of, tmp_path):
    """E-12: given up by the engine, never answered, or with a log-prob that is no number."""

    def script(request):
        if request.index == 1:
            return RuntimeError("lost")
        if request.index == 2:
            return Completion(2, (5, 6), (-1.0, math.nan), "stop")
        return "yes"

    rows, _ = fill(tmp_path / "g.jsonl", engine_of(script), samples=1)
    lost = [(row["uid"], row["response"], row["tokens"]) for row in rows if row["finish"] == "error"]
    assert lost == [("toy:1", "", 0), ("toy:2", "", 0)]
    assert len(rows) == 5


def test_texts_of_any_kind_survive(tmp_path):
    """Line separators, quotes, control characters and half a surrogate."""
    texts = ["a\nb\r\n", "\u2028\x1b[2J\x00", '"}', ""]
    stored = Generations(tmp_path / "g.jsonl", PROMPTS[:4], replace(LAW, samples=1), 17)
    answers = iter(texts)
    stored.fill(Watched("yes"), lambda ids: next(answers), lambda done: None)
    assert [row["response"] for row in stored.rows()] == texts
