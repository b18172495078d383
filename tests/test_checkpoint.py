import json
import os
import shutil
from pathlib import Path

import pytest

from rlctl.checkpoint import newest_first, oldest, prune, save, state_of, whole
from rlctl.errors import RunError


class Killed(BaseException):
    """Stands for a SIGKILL: nothing after it runs, no clean-up either."""


def writer(text):
    def write(folder):
        (folder / "model.safetensors").write_text(text)
        (folder / "optimizer.safetensors").write_text(text * 2)

    return write


def stored(root, step, text="weights"):
    return save(root, step, {"step": step, "text": text}, writer(text))


def newest_whole(root):
    return next((folder for folder in newest_first(root) if whole(folder)), None)


def consistent(folder):
    """Weights and state of one and the same save."""
    state = state_of(folder)
    return (folder / "model.safetensors").read_text() == state["text"]


def names(root):
    return sorted(p.name for p in root.iterdir())


def test_save_is_whole_and_says_what_it_holds(tmp_path):
    folder = stored(tmp_path, 40)
    assert folder == tmp_path / "step-000040"
    assert names(folder) == ["DONE", "model.safetensors", "optimizer.safetensors", "state.json"]
    assert whole(folder)
    assert state_of(folder) == {"step": 40, "text": "weights"}
    assert set(json.loads((folder / "DONE").read_text())) == {*names(folder)} - {"DONE"}


def test_newest_first_counts_steps_not_letters(tmp_path):
    for step in (2, 10, 9, 100):
        stored(tmp_path, step)
    assert [state_of(f)["step"] for f in newest_first(tmp_path)] == [100, 10, 9, 2]
    assert list(newest_first(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["truncated", "one bit", "missing", "longer"])
def test_d09_a_damaged_file_makes_a_checkpoint_incomplete(tmp_path, name, harm):
    """D-09."""
    file = stored(tmp_path, 1) / name
    content = file.read_bytes()
    if harm == "missing":
        file.unlink()
    else:
        flipped = bytes([content[0] ^ 1]) + content[1:]
        file.write_bytes({"truncated": content[:-1], "one bit": flipped, "longer": content + b" "}[harm])
    assert not whole(file.parent)


@pytest.mark.parametrize("done", [None, "", "{", "[]", "null", '{"gone": "00"}', '{"model.safetensors": 1}'])
def test_d09_a_folder_without_a_true_mark_is_no_checkpoint(tmp_path, done):
    """D-09."""
    folder = stored(tmp_path, 1)
    (folder / "DONE").unlink()
    if done is not None:
        (folder / "DONE").write_text(done)
    assert not whole(folder)


def test_d09_a_write_that_fails_leaves_the_earlier_checkpoint(tmp_path):
    """D-09: the disk fills up in the middle of the weights."""
    stored(tmp_path, 1)

    def full(folder):
        (folder / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError) as caught:
        save(tmp_path, 2, {}, full)
    assert "step 2" in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert caught.value.exit_code == 1
    assert names(tmp_path) == ["step-000001"]
    assert consistent(newest_whole(tmp_path))


MOMENTS = [(os, "fsync"), (os, "open"), (Path, "rename"), (Path, "write_text"), (shutil, "rmtree")]


def interrupted_saves(monkeypatch, error, attempt):
    """Call `attempt` again and again, failing at every moment of it in turn, until it goes through.

    Yields after each failure, with what was harmed put right.
    """
    for module, name in MOMENTS:
        real = getattr(module, name)
        for moment in range(100):
            calls = iter(range(1000))

            def failing(*args, real=real, calls=calls, moment=moment, **kwargs):
                if next(calls) == moment:
                    raise error
                return real(*args, **kwargs)

            with monkeypatch.context() as patch:
                patch.setattr(module, name, failing)
                try:
                    attempt()
                except (Killed, RunError):
                    pass
                else:
                    break
            yield f"{name} {moment}"


@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("again", [False, True], ids=["a new step", "the same step again"])
def test_d09_whatever_moment_breaks_a_save_a_checkpoint_is_left(tmp_path, monkeypatch, error, again):
    """D-09: with one checkpoint only, of an earlier step or of the very step that is saved again."""
    source, root = tmp_path / "source", tmp_path / "checkpoints"
    stored(source, 1, "old")

    def attempt():
        stored(root, 1 if again else 2, "new")

    moments = 0
    shutil.copytree(source, root)
    for moment in interrupted_saves(monkeypatch, error, attempt):
        found = newest_whole(root)
        assert found is not None, moment
        assert consistent(found), moment
        stored(root, 3, "later")  # the next session goes on from there
        prune(root, keep=1)
        assert names(root) == ["step-000003"], moment
        shutil.rmtree(root)
        shutil.copytree(source, root)
        moments += 1
    assert moments > 10


def test_a_step_saved_again_replaces_the_first(tmp_path):
    stored(tmp_path, 1, "old")
    stored(tmp_path, 1, "new")
    assert names(tmp_path) == ["step-000001"]
    assert state_of(newest_whole(tmp_path))["text"] == "new"


def test_prune_keeps_the_newest_complete_ones_and_the_protected_one(tmp_path):
    for step in range(1, 7):
        stored(tmp_path, step)
    (tmp_path / "step-000006" / "DONE").unlink()
    prune(tmp_path, keep=2, protect=2)
    assert names(tmp_path) == ["step-000002", "step-000004", "step-000005", "step-000006"]


def test_prune_counts_a_protected_one_among_the_newest(tmp_path):
    for step in range(1, 5):
        stored(tmp_path, step)
    prune(tmp_path, keep=2, protect=4)
    assert names(tmp_path) == ["step-000003", "step-000004"]


def test_prune_below_keep_removes_nothing(tmp_path):
    stored(tmp_path, 1)
    prune(tmp_path, keep=3)
    assert names(tmp_path) == ["step-000001"]


def test_the_oldest_that_will_stay(tmp_path):
    """What a run may still go on from: the newest complete ones, as `prune` counts them."""
    assert oldest(tmp_path / "nowhere", keep=2) == 0
    for step in (2, 10, 9, 100):
        stored(tmp_path, step)
    assert [oldest(tmp_path, keep) for keep in (1, 2, 3, 9)] == [100, 10, 9, 2]
    (tmp_path / "step-000100" / "DONE").unlink()
    assert oldest(tmp_path, keep=2) == 9


def test_leftovers_of_a_killed_save_go_with_the_next(tmp_path):
    (tmp_path / ".step-000033.tmp").mkdir(parents=True)
    (tmp_path / ".step-000033.tmp" / "model.safetensors").write_text("half")
    stored(tmp_path, 40)
    assert names(tmp_path) == ["step-000040"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(RunError, match="could not be written"):
        stored(tmp_path / "checkpoints", 1)
