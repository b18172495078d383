"""A judge of your own, by import path or file."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlctl.errors import UserError
from rlctl.types import Prompt, Verdict
from rlctl.verify import PythonVerifier
from rlctl.verify.base import BuiltVerifier, guarded

_HINT = "write `package.module:name` or `file.py:name`, the file absolute or relative to where you are"


class PythonJudge(BuiltVerifier):
    """Calls `judge(response: str, gold: str | tuple[str, ...], prompt: Prompt)`.

    `prompt` may be left out of its signature. It may be a function, an async function, a partial, an
    instance with `__call__`, or a class that is instantiated without arguments. What it returns is read by
    `rlctl.verify.base.as_verdict`; an exception, NaN or infinity is a verifier error. It runs in this
    process, from several threads at once, so it must be thread-safe, and it cannot be killed: it must end
    by itself. Async functions share one event loop.
    """

    def __init__(self, spec: PythonVerifier) -> None:
        self.name = f"python {spec.path}"
        self._function, self._arguments = _callable(spec.path)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Whatever the function says."""
        arguments = (text, prompt.gold, prompt)[: self._arguments]
        return guarded(lambda: self._finish(self._function(*arguments)))

    def close(self) -> None:
        """Stop the event loop, if there is one."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _finish(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        return asyncio.run_coroutine_threadsafe(_wait(result), self._running_loop()).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        # A loop on a thread of its own: the caller's thread may be running one already.
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="python-verifier", daemon=True).start()
            return self._loop


async def _wait(result: Awaitable[Any]) -> Any:
    return await result


def _callable(path: str) -> tuple[Callable[..., Any], int]:
    """What `path` names, ready to be called, and how many arguments it takes (2 or 3)."""
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise UserError(f"`{path}` is no path to a judge", _HINT)
    found = getattr(_module(place, path), name, None)
    if found is None:
        raise UserError(f"`{place}` has no `{name}`", _HINT)
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            raise UserError(
                f"the class `{path}` needs arguments: {error}", "name an instance of it instead"
            ) from error
    if not callable(found):
        raise UserError(f"`{path}` is a {type(found).__name__} and cannot be called", _HINT)
    return found, _arguments(found, path)


def _arguments(function: Callable[..., Any], path: str) -> int:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have none
        return 3
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise UserError(
        f"`{path}` takes `{signature}`", "a judge takes `(response, gold, prompt)` or `(response, gold)`"
    )


def _module(place: str, path: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _from_file(Path(place))
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return importlib.import_module(place)
    except FileNotFoundError as error:
        raise UserError(f"no such file, for the judge `{path}`: {Path(place).resolve()}", _HINT) from error
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"`{path}` cannot be imported: {type(error).__name__}: {reason}", _HINT) from error


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise FileNotFoundError(file)
    spec = importlib.util.spec_from_file_location(f"rlctl_judge_{file.stem}", file.resolve())
    assert spec is not None and spec.loader is not None  # a name that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
