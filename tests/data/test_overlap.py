"""Contamination: hand-made questions, the published sets, and what must not change the finding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import need_data

from rlctl.data import NAMED, ArithmeticSource, CountdownSource, DataSpec, MazeSource, NamedSource
from rlctl.data.load import Dataset, load, load_all
from rlctl.data.overlap import find, separate
from rlctl.errors import UserError
from rlctl.types import Prompt

SIX = "one two three four five six"  # two 5-grams


def dataset(*texts, name="set"):
    prompts = tuple(Prompt(f"{name}:{n}", (("user", text),), "1") for n, text in enumerate(texts))
    return Dataset(name, prompts)


def found(train, held_out, n=5):
    """Indices of contaminated questions, and of the training questions that they stand in."""
    overlap = find([dataset(*train, name="train")], [dataset(*held_out)], n)
    index = [int(uid.partition(":")[2]) for uid in overlap.held_out["set"]]
    return index, {int(uid.partition(":")[2]) for uid in overlap.train}


def spec(overlap, words=5):
    return DataSpec(train=ArithmeticSource(kind="arithmetic"), overlap=overlap, overlap_words=words)


# ---- by hand


@pytest.mark.parametrize(
    ("train", "sources"),
    [
        ([SIX], {0}),
        (["so: one two three four five, then"], {0}),  # one of two
        (["one two three four", "two three four six"], None),
        (["zero", "the two three four five six"], {1}),
        (["one two three four 5 six"], None),
        ([], None),
    ],
)
def test_half_of_the_n_grams(train, sources):
    assert found(train, [SIX]) == (([0], sources) if sources else ([], set()))


def test_n_grams_in_several_training_questions_add_up():
    """Seven words have three 5-grams: one is a third, two in two questions are two thirds."""
    seven = SIX + " seven"
    assert found(["one two three four five"], [seven]) == ([], set())
    train = ["one two three four five", "none", "and three four five six seven"]
    assert found(train, [seven]) == ([0], {0, 2})
    assert found(["one two three four five"] * 2, [seven]) == ([], set())


def test_a_short_question_counts_when_all_words_are_equal():
    train = ["What is 3 + 4?", "What is 3 - 4 times 2, in all?"]
    asked = ["what is\n3 + 4", "What is 3 - 4?", "What is", "3 + 4?", "What is 3 + 4 times"]
    assert found(train, asked, n=13) == ([0], {0})


def test_signs_are_words():
    assert found(["12-34="], ["12+34=", "12-34="]) == ([1], {0})
    assert found(["?"], ["?", "=", "."]) == ([0], {0})


def test_an_instruction_that_most_questions_share_is_no_evidence():
    rule = "Think step by step and put the final answer into a box. "
    asked = [rule + text for text in ("2+2?", "Who is who?", SIX)]
    assert found([rule + "3+3?"], asked) == ([], set())
    assert found([rule + "3+3?"], asked[:1]) == ([0], {0})  # one question alone does not tell
    assert found([rule + SIX, rule + "3+3?", "2+2?"], asked) == ([2], {0})
    assert found([rule + "2+2?"], asked) == ([0], {0})


def test_chinese_characters_are_words():
    asked = "小明有5个苹果，又买了3个。"
    assert found(["小红说：小明有5个苹果，又买了3个！"], [asked]) == ([0], {0})
    assert found(["小明有6个梨，又买了3个。"], [asked]) == ([], set())


def test_system_prompts_and_several_messages_are_part_of_the_question():
    chat = Prompt("set:0", (("system", "one two three"), ("user", "four five six")), "1")
    assert find([dataset(SIX, name="train")], [Dataset("set", (chat,))], 5).held_out == {"set": ["set:0"]}


# ---- the published sets, the generated tasks


@pytest.fixture
def published():
    root = str(need_data())

    def sets(*names, split="test"):
        return load_all([NamedSource(kind=name) for name in names], root=root, split=split, seed=1)

    return sets


def test_e15_what_of_the_published_sets_stands_in_gsm8k(published):
    """E-15: one problem, of which two training problems have the wording and other numbers."""
    overlap = find(published("gsm8k", split="train"), published(*NAMED), 13)
    assert overlap.held_out == {name: ["gsm8k:602"] * (name == "gsm8k") for name in NAMED}
    assert overlap.train == {"gsm8k:1314", "gsm8k:5162"}


def test_e15_a_copied_test_set_is_found(published):
    """E-15: copied with other spacing and case, a tenth of GSM8K's test questions are all found."""
    train, (test,) = published("gsm8k", split="train"), published("gsm8k")
    copied = dataset(*("  ".join(p.text.upper().split()) for p in test.prompts[::10]), name="leak")
    overlap = find([*train, copied], [test], 13)
    assert {p.uid for p in test.prompts[::10]} | {"gsm8k:602"} == set(overlap.held_out["gsm8k"])
    assert {p.uid for p in copied.prompts} < overlap.train


@pytest.mark.parametrize(
    "source",
    [
        ArithmeticSource(kind="arithmetic", operations=("+", "-", "*"), digits=1, problems=1000),
        ArithmeticSource(kind="arithmetic", digits=2, problems=5000),
        CountdownSource(kind="countdown", numbers=5, problems=1000),
        MazeSource(kind="maze", size=5, problems=50),
        MazeSource(kind="maze", size=9, problems=1000),
        MazeSource(kind="maze", size=15, problems=200),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [5, 13])
def test_generated_tasks_raise_no_alarm(source, n):
    train, held_out = ([load(source, split=split, seed=3)] for split in ("train", "test"))
    assert find(train, held_out, n) == ({source.kind: []}, set())
    assert len(find(held_out, held_out, n).train) == len(held_out[0].prompts)


# ---- what must not matter, and the same said a second way

questions = st.lists(
    st.lists(st.sampled_from(["a", "bc", "Def", "7", "+"]), min_size=1, max_size=9).map(" ".join), max_size=8
)


def plain(train, asked, n):
    """Indices of contaminated questions, from the definition."""

    def windows(text):
        words = text.split()
        return {tuple(words[i : i + n]) for i in range(len(words)) if len(words[i : i + n]) == n}

    def shared(window):
        return sum(window in windows(other) for other in asked)

    bad = []
    for index, text in enumerate(asked):
        own = [w for w in windows(text) if shared(w) < 2 or shared(w) <= len(asked) / 2]
        known = [w for w in own if any(w in windows(other) for other in train)]
        if (2 * len(known) >= len(own)) if own else (text.split() in [other.split() for other in train]):
            bad.append(index)
    return bad


@settings(max_examples=200, deadline=None)
@given(train=questions, asked=questions)
def test_the_finding_is_that_of_the_definition(train, asked):
    assert found(train, asked, 3)[0] == plain(train, asked, 3)


@settings(max_examples=100, deadline=None)
@given(train=questions, asked=questions, data=st.data())
def test_order_case_and_spacing_do_not_matter(train, asked, data):
    def another(text):
        gap = data.draw(st.sampled_from([" ", "\n", " \t ", "\u00a0"]))
        change = data.draw(st.sampled_from([str.upper, str.lower, str.swapcase]))
        return gap + gap.join(change(text).split(" ")) + gap

    before = found(train, asked, 3)
    assert found([another(text) for text in train], [another(text) for text in asked], 3) == before
    orders = [data.draw(st.permutations(range(len(texts)))) for texts in (train, asked)]
    after = found([train[i] for i in orders[0]], [asked[i] for i in orders[1]], 3)
    assert sorted(orders[1][i] for i in after[0]) == before[0]
    assert {orders[0][i] for i in after[1]} == before[1]


# ---- warn, drop, error


@settings(max_examples=100, deadline=None)
@given(first=questions.filter(bool), second=questions.filter(bool), asked=questions)
def test_e15_drop_leaves_nothing_contaminated(first, second, asked):
    """E-15: what stays is in its order, with its uids; nothing of the evaluation changes."""
    train, held_out = [dataset(*first, name="a"), dataset(*second, name="b")], [dataset(*asked)]
    try:
        kept, _ = separate(train, held_out, spec("drop"))
    except UserError as error:
        assert "every training problem is evaluated on" in str(error)
        return
    sources = find(train, held_out, 5).train
    assert find(kept, held_out, 5) == ({"set": []}, set())
    for before, after in zip(train, kept, strict=True):
        assert after.prompts == tuple(p for p in before.prompts if p.uid not in sources)
        assert (after.fingerprint == before.fingerprint) is (after.prompts == before.prompts)


def test_warn_says_it_and_keeps_all():
    train, held_out = [dataset(*"abcdefg", name="train")], [dataset(*"xgfedcba"), dataset("z", name="new")]
    kept, told = separate(train, held_out, spec("warn"))
    assert kept == train
    assert told == [
        "set: 7 of 8 problems to evaluate on stand in training problems: set:1, set:2, set:3, set:4, set:5"
    ]
    assert separate(train, [dataset("z")], spec("error")) == (train, [])
    assert separate(train, [], spec("error")) == (train, [])


def test_drop_says_how_many():
    train, held_out = [dataset(*"abc", name="train"), dataset("d", name="more")], [dataset(*"xac")]
    kept, told = separate(train, held_out, spec("drop"))
    assert [[p.uid for p in d.prompts] for d in kept] == [["train:1"], ["more:0"]]
    assert told[1:] == ["train: 2 of 3 training problems dropped"]


def test_error_names_the_first():
    with pytest.raises(UserError) as error:
        separate([dataset(*"abc", name="train")], [dataset(*"xac")], spec("error"))
    assert error.value.exit_code == 2
    assert str(error.value).splitlines() == [
        "set: 2 of 3 problems to evaluate on stand in training problems: set:1, set:2",
        "take other problems, or set `data.overlap` to `drop` or `warn`",
    ]


def test_a_set_trained_and_evaluated_on_cannot_be_dropped():
    with pytest.raises(UserError, match="set: every training problem is evaluated on"):
        separate([dataset(*"ab")], [dataset(*"ab")], spec("drop"))
