import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlctl.errors import UserError
from rlctl.types import Prompt, Verdict
from rlctl.verify import PythonVerifier
from rlctl.verify.python import PythonJudge

SOURCE = """
import asyncio, functools
from dataclasses import dataclass
from rlctl.types import Verdict

def judge(response, gold, prompt):
    assert prompt.gold == gold
    return float(response == gold)

def short(response, gold):
    return response == gold

def strict(response, gold, prompt, *, high):
    return high if response == gold else -high

partial = functools.partial(strict, high=2.0)

@dataclass
class Judge:
    high: float = 1.0
    def __call__(self, response, gold, prompt):
        return self.high * (response == gold)

instance = Judge(3.0)

class Needs:
    def __init__(self, model): ...

async def slow(response, gold, prompt):
    await asyncio.sleep(0.01)
    return Verdict(float(response == gold), response == gold, answer=response)

class SlowJudge:
    async def __call__(self, response, gold, prompt):
        await asyncio.sleep(0)
        return response == gold

def factory(response, gold, prompt):
    return judge

def broken(response, gold, prompt):
    raise ZeroDivisionError("oh")

one = lambda response: 1.0
number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "grade.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judge(path, text="7"):
    verifier = PythonJudge(PythonVerifier(path=path))
    try:
        return verifier.judge(Prompt("set:1", (), "7"), text)
    finally:
        verifier.close()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("judge", 1.0, 0.0),
        ("short", 1.0, 0.0),
        ("partial", 2.0, -2.0),
        ("instance", 3.0, 0.0),
        ("Judge", 1.0, 0.0),
        ("slow", 1.0, 0.0),
        ("SlowJudge", 1.0, 0.0),
    ],
)
def test_f10_every_kind_of_callable(folder, name, right, wrong):
    """F-10, A-10."""
    good, bad = judge(f"grade.py:{name}"), judge(f"grade.py:{name}", "8")
    assert (good.reward, good.correct, good.error) == (right, True, None)
    assert (bad.reward, bad.correct, bad.error) == (wrong, False, None)


def test_absolute_file_and_module(folder, monkeypatch):
    assert judge(f"{folder}/grade.py:judge").correct
    (folder / "my_own_judges").mkdir()
    (folder / "my_own_judges" / "first.py").write_text(SOURCE)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert judge("my_own_judges.first:judge").correct


def test_v26_a_failing_judge_is_a_counted_wrong_answer(folder):
    """V-26, F-10."""
    assert judge("grade.py:broken") == Verdict(
        0.0, False, error="ZeroDivisionError: oh", reason="ZeroDivisionError: oh"
    )
    assert "returned a function" in (judge("grade.py:factory").error or "")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("grade.py", "no path to a judge"),
        ("missing.py:judge", "no such file"),
        ("no_such_module_here:judge", "cannot be imported: ModuleNotFoundError"),
        ("wrong.py:judge", "cannot be imported: NameError"),
        ("grade.py:missing", "has no `missing`"),
        ("grade.py:Needs", "needs arguments"),
        ("grade.py:one", r"takes `\(response\)`"),
        ("grade.py:number", "is a int and cannot be called"),
    ],
)
def test_bad_paths(folder, path, words):
    (folder / "wrong.py").write_text("judge = nothing")
    with pytest.raises(UserError, match=words) as caught:
        PythonJudge(PythonVerifier(path=path))
    assert len(str(caught.value).splitlines()) <= 3
    assert caught.value.hint


def test_v02_v15_async_judges_from_threads_and_from_an_event_loop(folder):
    """V-02, V-15: each verdict belongs to its own response."""
    verifier = PythonJudge(PythonVerifier(path="grade.py:slow"))
    prompt, texts = Prompt("set:1", (), "7"), [str(n % 10) for n in range(40)]

    async def inside_a_loop():
        blocking = verifier.judge(prompt, "7")  # in the loop's own thread
        return blocking, await asyncio.gather(
            *(asyncio.to_thread(verifier.judge, prompt, text) for text in texts)
        )

    with ThreadPoolExecutor(8) as threads:
        from_threads = list(threads.map(lambda text: verifier.judge(prompt, text), texts))
    blocking, from_loop = asyncio.run(inside_a_loop())
    verifier.close()
    assert from_threads == from_loop == [Verdict(float(t == "7"), t == "7", t) for t in texts]
    assert blocking.correct
