"""Loads a policy of one's own from its file. Whoever calls this has been allowed to run the file's code."""

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

from tradewind.core.pick.ask import Policy
from tradewind.core.pick.policies.own import Chooses, OwnPolicy, PolicyFile

MAX_FILE_BYTES = 1_048_576  # a policy is a page of Python
CHOOSE = "a class with choose(self, ask), see docs/how-to/own-policy.md"


class PolicyFileError(ValueError):
    """There is no policy to be had from this file; the message says why and what to write."""


def policy_class(file: PolicyFile) -> type:
    """The class, from the file as it is now. Raises PolicyFileError."""
    module = _module(file)
    found = getattr(module, file.name, None)
    if not isinstance(found, type):
        classes = [name for name, value in vars(module).items() if _is_policy(value, module)]
        write = " or ".join(f"{file.path}:{name}" for name in classes) or CHOOSE
        raise PolicyFileError(f"{file.path} has no class {file.name!r}; write {write}")
    return found


def made(cls: type, file: PolicyFile, *arguments: object) -> object:
    """An object of the class; it gets `arguments`, and the option where one is written. Raises PolicyFileError."""
    try:
        return cls(*arguments, *((file.option,) if file.option else ()))
    except (Exception, SystemExit) as error:
        raise PolicyFileError(f"{file.written} cannot be made{line_of(error, file.path)}: {_told(error)}") from error


def own_policy(file: PolicyFile) -> Policy:
    """A policy for one picker. Raises PolicyFileError."""
    cls = policy_class(file)
    if not callable(getattr(cls, "choose", None)):
        raise PolicyFileError(f"{file.written} has no method choose; write {CHOOSE}")
    return of_class(cls, file)


def of_class(cls: type, file: PolicyFile) -> Policy:
    """The same, from a class that was loaded before. Raises PolicyFileError."""
    return OwnPolicy(cast("Chooses", made(cls, file)), file, lines=line_of)


def file_hash(file: PolicyFile) -> str:
    """A hash of what the file says. Raises PolicyFileError."""
    return hashlib.sha256(_read(file)).hexdigest()


def line_of(error: BaseException, path: str) -> str:
    """ " line 12" of the file, where the error came by there."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" line {lines[-1]}" if lines else ""


def _read(file: PolicyFile) -> bytes:
    path = Path(file.path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise PolicyFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes; write one file with the policy")
        return path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise PolicyFileError(f"{path} {what}; write the path of a Python file, from {Path.cwd()}") from error


def _module(file: PolicyFile) -> ModuleType:
    """Compiled anew each time: a cache of byte code would be a file beside somebody's, and old after a quick change."""
    source = _read(file)
    name = f"tradewind_policy_{hashlib.sha256(file.path.encode() + source).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = file.path
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        exec(compile(source, file.path, "exec"), vars(module))
    except SyntaxError as error:
        raise PolicyFileError(f"{error.filename} line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise PolicyFileError(f"{file.path}{line_of(error, file.path)} raised on import: {_told(error)}") from error
    return module


def _is_policy(value: object, module: ModuleType) -> bool:
    here = isinstance(value, type) and value.__module__ == module.__name__
    return here and (hasattr(value, "choose") or hasattr(value, "pick"))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
