import json
import os
import signal
import subprocess
import sys

import pytest

from rlctl.checkpoint import save
from rlctl.errors import RunError, UserError
from rlctl.runfolder import RunFolder, write

HOLD = """
import sys, time
from pathlib import Path
from rlctl.runfolder import RunFolder
RunFolder(Path(sys.argv[1])).open("auto")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "toy-12345678")


@pytest.fixture
def holder(folder):
    """Another process that holds the run folder."""
    command = [sys.executable, "-c", HOLD, str(folder.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def begun(folder):
    folder.open("auto")
    write(folder.path / "recipe.yaml", "name: toy\n")
    folder.close()
    return folder


def stored(folder, step):
    return save(folder.checkpoints, step, {"step": step}, lambda f: (f / "model.safetensors").write_text("x"))


def test_a_folder_in_use_is_refused_and_names_its_holder(folder, holder):
    with pytest.raises(RunError) as caught:
        folder.open("auto")
    assert f"in use by process {holder.pid}" in str(caught.value)
    assert str(folder.path) in str(caught.value)
    assert caught.value.exit_code == 1


def test_the_end_of_its_holder_frees_a_folder_however_it_came(folder, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    folder.open("auto")
    assert (folder.path / ".lock").read_text() == str(os.getpid())
    folder.close()


def test_a_folder_is_held_within_one_process_too(folder):
    folder.open("auto")
    other = RunFolder(folder.path)
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        other.open("auto")
    folder.close()
    other.open("auto")
    other.close()


def test_d13_auto_begins_in_an_empty_place(folder):
    """D-13."""
    said = []
    folder.open("auto")
    assert folder.checkpoints.is_dir()
    assert folder.newest("auto", said.append) is None
    assert said == []
    folder.close()


def test_d13_must_without_a_checkpoint_is_an_error(folder):
    """D-13: never a silent restart; nothing is made either."""
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        folder.open("must")
    assert not folder.path.exists()
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        begun(folder).open("must")


def test_must_with_a_checkpoint_opens(folder):
    stored(begun(folder), 3)
    folder.open("must")
    assert folder.newest("must", print).name == "step-000003"
    folder.close()


def test_d14_never_refuses_a_folder_that_was_begun(folder):
    """D-14: a fresh run never meets what an older one left."""
    folder.open("never")
    folder.close()
    with pytest.raises(UserError, match="exists already") as caught:
        begun(folder).open("never")
    assert caught.value.exit_code == 2


def test_newest_passes_over_broken_checkpoints_and_says_so(folder):
    for step in (1, 2, 3):
        stored(folder, step)
    (folder.checkpoints / "step-000003" / "DONE").unlink()
    (folder.checkpoints / "step-000002" / "model.safetensors").write_text("y")
    said = []
    assert folder.newest("auto", said.append) == folder.checkpoints / "step-000001"
    assert [line.split()[1].rpartition("/")[2] for line in said] == ["step-000003", "step-000002"]
    assert all("passed over" in line for line in said)


def test_must_stops_at_a_broken_newest_checkpoint(folder):
    for step in (1, 2):
        stored(folder, step)
    (folder.checkpoints / "step-000002" / "state.json").write_text("{")
    with pytest.raises(RunError, match="step-000002 is incomplete or damaged") as caught:
        folder.newest("must", print)
    assert "--resume auto" in str(caught.value)
    assert caught.value.exit_code == 1


def test_status_is_replaced_whole(folder):
    folder.open("auto")
    assert folder.status() == {}
    folder.write_status(state="running", step=1)
    folder.write_status(state="finished")
    assert folder.status() == {"state": "finished"}
    assert json.loads((folder.path / "status.json").read_text()) == {"state": "finished"}
    assert sorted(p.name for p in folder.path.iterdir()) == [".lock", "checkpoints", "status.json"]
    folder.close()


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match="cannot be written") as caught:
        RunFolder(tmp_path / "runs" / "toy").open("auto")
    assert "output_dir" in str(caught.value)


def test_write_never_shows_half_a_file(tmp_path):
    """The old text stays where the new one cannot be written."""
    file = tmp_path / "a.txt"
    write(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write(file, "new \ud800")
    assert file.read_text() == "old"


def test_a_torn_status_is_no_status(tmp_path):
    (tmp_path / "status.json").write_text("")
    assert RunFolder(tmp_path).status() == {}
