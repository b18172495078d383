import pytest

from rlctl.engine.scripted import ScriptedEngine
from rlctl.models import TinyModel
from rlctl.models.tiny import character_tokenizer
from rlctl.types import Completion, Request

TOKENIZER = character_tokenizer(TinyModel(kind="tiny"))
EOS_ID = TOKENIZER.eos_token_id


def ask(n=4, max_tokens=10):
    return [Request(index=i, ids=(5,), seed=i, max_tokens=max_tokens) for i in range(n)]


def test_the_seed_chooses_the_response():
    done = list(ScriptedEngine(TOKENIZER, ["a", "bc"], EOS_ID).generate(ask()))
    assert [TOKENIZER.decode(c.ids[:-1]) for c in done] == ["a", "bc", "a", "bc"]
    assert done[1] == Completion(1, (*TOKENIZER("bc")["input_ids"], EOS_ID), (-1.0,) * 3, "stop")


def test_a_long_response_is_cut_without_an_eos():
    (c,) = ScriptedEngine(TOKENIZER, ["abc"], EOS_ID).generate(ask(1, max_tokens=3))
    assert c == Completion(0, tuple(TOKENIZER("abc")["input_ids"]), (-1.0,) * 3, "length")


def test_a16_one_request_can_fail_alone_or_take_the_engine_along():
    """A-16: a returned exception is one failed completion, a raised one stops generation midway."""

    def script(request):
        if request.index == 1:
            return RuntimeError("lost")
        if request.index == 3:
            raise RuntimeError("dead")
        return Completion(request.index, (7,), (-0.5,), "stop") if request.index == 2 else "x"

    answers = ScriptedEngine(TOKENIZER, [], EOS_ID, script).generate(ask())
    assert next(answers).finish == "stop"
    assert next(answers) == Completion(1, (), (), "error")
    assert next(answers).ids == (7,)
    with pytest.raises(RuntimeError, match="dead"):
        next(answers)
