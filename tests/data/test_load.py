"""Files, the published sets, the hub: everything that `load` serves."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from published import need_data

from rlctl.data import NAMED, ArithmeticSource, HubSource, JsonlSource, NamedSource
from rlctl.data.load import load, load_all
from rlctl.data.named import SETS
from rlctl.errors import UserError


@pytest.fixture
def shared():
    return str(need_data())


@pytest.fixture
def offline(monkeypatch):
    from datasets import config
    from huggingface_hub import constants

    monkeypatch.delenv("RLCTL_DATA", raising=False)
    monkeypatch.setattr(config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return JsonlSource(kind="jsonl", path=str(path))


def refused(*args, **kwargs):
    with pytest.raises(UserError) as error:
        load(*args, seed=1, **kwargs)
    assert len(str(error.value).splitlines()) <= 3
    return str(error.value)


# ---- the published sets


@pytest.mark.parametrize(
    ("name", "split", "problems", "first"),
    [
        ("gsm8k", "train", 7473, "72"),
        ("gsm8k", "test", 1319, "18"),
        ("math500", "test", 500, r"\left( 3, \frac{\pi}{2} \right)"),
        ("aime24", "test", 30, "204"),
        ("aime25", "test", 30, "70"),
        ("amc23", "test", 40, "27"),
        ("minerva_math", "test", 272, "1.6"),
        ("olympiadbench", "test", 675, "2"),
        ("svamp", "test", 1000, "145"),
        ("cmath", "test", 600, "9"),
    ],
)
def test_published_sets(shared, name, split, problems, first):
    dataset = load(NamedSource(kind=name), root=shared, split=split, seed=1)
    assert (dataset.name, len(dataset.prompts), dataset.judge) == (name, problems, None)
    assert dataset.prompts[0].gold == first
    assert [prompt.uid for prompt in dataset.prompts[:2]] == [f"{name}:0", f"{name}:1"]
    assert all(isinstance(prompt.gold, str) and "####" not in prompt.gold for prompt in dataset.prompts)


def test_details_of_the_published_sets(shared):
    def first(name):
        return load(NamedSource(kind=name, limit=1), root=shared, split="test", seed=1).prompts[0].text

    assert first("cmath") == "芳芳买了一本书有99页，看了90页，她还剩多少页没有看？"
    assert first("svamp").endswith("into 93 groups. How big is each group of bananas?")
    whole = load(NamedSource(kind="gsm8k"), root=shared, split="train", seed=1)
    assert all("," not in prompt.gold for prompt in whole.prompts)


def test_every_named_set_is_in_the_table():
    assert set(SETS) == set(NAMED)


def test_a_set_without_a_training_split_says_so(shared):
    assert "math500 has no split `train`" in refused(NamedSource(kind="math500"), root=shared, split="train")
    spec = NamedSource(kind="math500", split="test", limit=3)
    assert len(load(spec, root=shared, split="train", seed=1).prompts) == 3


def test_places_in_the_data_folder(tmp_path, monkeypatch):
    row = {"question": "1+1?", "answer": "#### 2"}
    (tmp_path / "gsm8k").mkdir()
    jsonl(tmp_path / "gsm8k/train.jsonl", [row])
    jsonl(tmp_path / "gsm8k.jsonl", [row, row])
    assert len(load(NamedSource(kind="gsm8k"), root=str(tmp_path), split="train", seed=1).prompts) == 1
    monkeypatch.setenv("RLCTL_DATA", str(tmp_path))
    assert len(load(NamedSource(kind="gsm8k"), split="test", seed=1).prompts) == 2
    (tmp_path / "gsm8k/train.jsonl").unlink()
    message = refused(NamedSource(kind="gsm8k"), split="train")  # the test set is never trained on by mistake
    assert str(tmp_path) in message and "data.root" in message and "RLCTL_DATA" in message


def test_no_hub_says_how_to_give_a_folder(offline):
    message = refused(NamedSource(kind="gsm8k"), split="train")
    assert all(word in message for word in ("gsm8k", "data.root", "RLCTL_DATA"))
    message = refused(HubSource(kind="hub", path="someone/something"), split="train")
    assert "someone/something" in message and "jsonl" in message


def test_hub_rows_become_prompts(tmp_path, monkeypatch):
    """A local folder goes through `datasets.load_dataset` as a hub id does."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "mine"
    folder.mkdir()
    jsonl(folder / "train.jsonl", [{"q": "几?", "a": ["1", "一"]}, {"q": "2?", "a": ["2"]}])
    spec = HubSource(kind="hub", path=str(folder), prompt="q", answer="a")
    dataset = load(spec, split="train", seed=1)
    expected = [("mine:0", "几?", ("1", "一")), ("mine:1", "2?", "2")]
    assert [(p.uid, p.text, p.gold) for p in dataset.prompts] == expected
    assert "row 0: no field `wrong`; there are: q, a" in refused(
        spec.model_copy(update={"prompt": "wrong"}), split="train"
    )
    assert "split nothing" in refused(spec.model_copy(update={"split": "nothing"}), split="train")


# ---- files


def test_jsonl_keeps_unicode_line_separators_and_blank_lines(tmp_path):
    path = tmp_path / "my: set.jsonl"
    text = '\ufeff{"prompt": "a\u2028b 三", "answer": "1"}\r\n\n{"prompt": "c", "answer": ["2", "3"]}'
    path.write_bytes(text.encode("utf-8"))
    dataset = load(JsonlSource(kind="jsonl", path=str(path)), split="train", seed=1)
    assert [prompt.text for prompt in dataset.prompts] == ["a\u2028b 三", "c"]
    assert [prompt.gold for prompt in dataset.prompts] == ["1", ("2", "3")]
    assert dataset.name == "my-set" and [p.set for p in dataset.prompts] == ["my-set"] * 2


def test_jsonl_errors_name_file_and_line(tmp_path):
    def message(text):
        path = tmp_path / "set.jsonl"
        path.write_bytes(text)
        return refused(JsonlSource(kind="jsonl", path=str(path)), split="train")

    good = b'{"prompt": "a", "answer": "1"}\n'
    assert "set.jsonl: no problem in it" in message(b"") and "no problem" in message(b"\n \n")
    assert "set.jsonl, line 3: broken JSON" in message(good + b"\n{'prompt'")
    assert "set.jsonl, line 2: not an object" in message(good + b'["a", "1"]')
    assert "set.jsonl, line 2: no field `answer`; there are: prompt, gold" in message(
        good + b'{"prompt": "a", "gold": 1}'
    )
    assert "not UTF-8 at byte 2" in message(b'{"\xff')
    assert "nothing.jsonl: cannot be read" in refused(
        JsonlSource(kind="jsonl", path=str(tmp_path / "nothing.jsonl")), split="train"
    )


def test_limit_takes_the_first(tmp_path):
    spec = jsonl(tmp_path / "x.jsonl", [{"prompt": str(k), "answer": k} for k in range(9)])
    limited = load(spec.model_copy(update={"limit": 4}), split="train", seed=1)
    assert [prompt.text for prompt in limited.prompts] == list("0123")


# ---- identity


def test_a11_equal_text_with_other_golds_stays_apart(tmp_path):
    """A-11: grouping is by uid, never by text."""
    rows = [{"prompt": "x?", "answer": "1"}, {"prompt": "x?", "answer": "2"}, {"prompt": "x?", "answer": "1"}]
    prompts = load(jsonl(tmp_path / "twice.jsonl", rows), split="train", seed=1).prompts
    assert len({prompt.uid for prompt in prompts}) == 3
    assert [prompt.gold for prompt in prompts] == ["1", "2", "1"]


def test_a12_sets_with_equal_ids_stay_apart(tmp_path):
    """A-12: ids that start at 0 in each set, and even sets of one name, share no uid."""
    for folder in "ab":
        (tmp_path / folder).mkdir()
    first = jsonl(tmp_path / "a/set.jsonl", [{"prompt": "a", "answer": 1}])
    second = jsonl(tmp_path / "b/set.jsonl", [{"prompt": "b", "answer": 1}])
    odd = second.model_copy(update={"name": "set-2"})
    datasets = load_all((first, odd, second, first), split="train", seed=1)
    assert [dataset.name for dataset in datasets] == ["set", "set-2", "set-3", "set-4"]
    assert [d.prompts[0].uid for d in datasets] == ["set:0", "set-2:0", "set-3:0", "set-4:0"]
    assert [d.prompts[0].set for d in datasets] == [d.name for d in datasets]
    assert [d.name for d in load_all(first, split="train", seed=1)] == ["set"]


def test_d11_fingerprint_follows_what_is_trained_on(tmp_path):
    """D-11: a changed question, gold or order changes it; the folder and the white space do not."""
    rows = [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]

    def fingerprint(name, rows):
        (tmp_path / name).mkdir()
        return load(jsonl(tmp_path / name / "set.jsonl", rows), split="train", seed=1).fingerprint

    same = fingerprint("one", rows)
    assert same == fingerprint("two", rows) and len(same) == 64
    changed = [
        rows[::-1],
        rows[:1],
        [rows[0], {"prompt": "b", "answer": "3"}],
        [rows[0], {"prompt": "c", "answer": "2"}],
    ]
    others = {fingerprint(f"other{k}", other) for k, other in enumerate(changed)}
    assert len(others) == 4 and same not in others

    spec = ArithmeticSource(kind="arithmetic", problems=50)
    dataset = load(spec, split="train", seed=1)
    assert dataset.fingerprint == load(spec, split="train", seed=1).fingerprint
    assert dataset.fingerprint != load(spec, split="train", seed=2).fingerprint
    assert dataset.fingerprint != replace(dataset, prompts=dataset.prompts[1:]).fingerprint


def test_the_room_opens_without_heavy_packages():
    code = (
        "import sys, rlctl.data.load, rlctl.data.render, rlctl.data.source\n"
        "assert not {'torch', 'numpy', 'transformers', 'datasets', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
