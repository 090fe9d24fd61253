"""Refuse code of a project that changes what judges it, or that could run while others judge.

spec.py, cases.py and reference.py are executed where outputs are compared: a line in them could replace a function that
compares, here, in NumPy or in Python, or leave a hook, a signal handler or a thread. `begin` remembers what the
functions of this package use before these files are executed, `require_unchanged` compares. A fork server calls
`record` once for all its steps, so that a step compares only the dictionaries that have changed since: CPython counts
their changes.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import itertools
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from opmatrix.basics.errors import SpecError

# What a file of a project changes, by the last word of which its line is found, and what the message says.
OTHER = "lets code run in the middle of other code"
MESSAGES = {
    "sys.settrace": "traces the functions of this process",
    "sys.setprofile": "traces the functions of this process",
    "sys.monitoring": "traces the functions of this process",
    "sys.meta_path": "changes how modules are found (sys.meta_path)",
    "gc.callbacks": f"{OTHER} (gc.callbacks)",
    "signal.signal": f"{OTHER} (signal.signal)",
    "threading.Thread": "leaves a thread that runs",
}
EVENTS = ("sys.addaudithook",)  # of audit hooks, which see what nothing lists
_getsignal = sys.modules["_signal"].getsignal  # that of `signal` makes an enum of each, which takes 10 times as long
_OF_FILES = ("gc.callbacks", "signal.signal", "threading.Thread")  # stages have their own later

# Where a dictionary has its version, which CPython 3.11 to 3.13 count (PEP 509): it differs after each change.
TAG = 3 * ctypes.sizeof(ctypes.c_void_p)


@functools.cache
def has_tags() -> bool:
    """Return whether this Python counts the changes of a dictionary where `TAG` says."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 14):
        return False
    tried: dict[str, int] = {"a": 1}
    tag = ctypes.c_uint64.from_address(id(tried) + TAG)
    first = tag.value
    again, tried["a"] = tag.value, 2
    return first == again != tag.value


def running_now() -> dict[str, tuple[object, ...]]:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return {
        "sys.settrace": (sys.gettrace(),),
        "sys.setprofile": (sys.getprofile(),),
        "sys.monitoring": tuple(map(monitoring.get_tool, range(6))) if monitoring else (),
        "sys.meta_path": tuple(sys.meta_path),
        "gc.callbacks": tuple(gc.callbacks),
        "signal.signal": tuple(map(_getsignal, range(1, signal.NSIG))),
        "threading.Thread": tuple(sys._current_frames()),
    }


def left(before: Mapping[str, tuple[object, ...]], *, declared: bool) -> Iterator[str]:
    """Yield what has changed since `before` by a file of a project. `declared`: only such files have run."""
    for name, there in running_now().items():
        if there != before[name] and (declared or name not in _OF_FILES):
            ended = name == "threading.Thread" and set(there) <= set(before[name])
            # A finder of modules may be that of an installed package, such as of six.
            finders = set(there) ^ set(before[name]) if name == "sys.meta_path" else set()
            modules = [sys.modules.get(getattr(f, "__module__", None) or type(f).__module__) for f in finders]
            installed = modules and all("-packages" in (getattr(m, "__file__", None) or "") for m in modules)
            if not ended and not installed:
                yield name


_PACKAGE = __name__.partition(".")[0]
_FOLDER = str(Path(__file__).parents[1])
_WHOLE = (_PACKAGE, "numpy")  # packages of which every function counts; of others, what this package uses
_HEAP_TYPE = 1 << 9  # of type.__flags__: its attributes can be set
_EDITS = ("__code__", "__defaults__", "__kwdefaults__")
_NOTHING = object()
_MEMBERS = (property, staticmethod, classmethod, functools.cached_property)
# Where members of a class or a module have their function.
_INSIDE = {staticmethod: "__func__", classmethod: "__func__", MethodType: "__func__", property: "fget"}


@dataclass(frozen=True)
class _Watched:
    """A dictionary of a module, a class or a constant, what its names stood for, and how to print them."""

    shown: str
    content: dict[str, Any]
    before: Mapping[str, Any]
    names: frozenset[Any]  # the keys that count: a constant may have types
    closed: bool = False  # no other function may be added

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield the names that have another value now, with that value."""
        for name in self.names:
            now = self.content.get(name, _NOTHING)
            if now is not self.before[name] and not _wraps(now, self.before[name]):
                yield f"{self.shown}.{getattr(name, '__name__', name)}", now
        if self.closed or self.shown.startswith(f"{_PACKAGE}."):
            for name in self.content.keys() - self.before.keys():
                now = self.content[name]
                if "__path__" in self.before:  # of a package: a module
                    hides = now is not sys.modules.get(f"{self.shown}.{name}")
                else:  # a function of Python, or that of a base class
                    hides = name in vars(builtins) or (self.closed and _is_code(now))
                if hides:
                    yield f"{self.shown}.{name}", now


def _wraps(now: Any, before: Any) -> bool:
    """Return whether torch itself wraps a function of its own: `import torch._dynamo` does so with manual_seed."""
    torch = sys.modules.get("torch")
    file = getattr(getattr(now, "__code__", None), "co_filename", "")
    return torch is not None and getattr(now, "__wrapped__", None) is before and file.startswith(torch.__path__[0])


@dataclass(kw_only=True)
class _Record:
    watched: dict[int, _Watched] = field(default_factory=dict)  # by the identity of the dictionary
    tags: list[ctypes.c_uint64] = field(default_factory=list)  # in the same order
    versions: list[int] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)  # of `_WHOLE`, that are recorded
    loaded: int = 0  # modules in sys.modules, which has them in the order in which they were loaded
    cells: list[tuple[str, CellType, Any]] = field(default_factory=list)  # functions in closures of functions
    edits: list[str] = field(default_factory=list)
    root: Path | None = None
    operators: tuple[str, ...] = ()
    hooks: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


_record = _Record()


def record() -> None:
    """Remember what judges now, for `begin` in this process or in a fork of it."""
    classes, used = set[type](), defaultdict[ModuleType, set[str]](set)
    for name in _newest_modules():
        module, package = sys.modules[name], name.partition(".")[0]
        if package in _WHOLE and isinstance(module, ModuleType):
            _record.modules.add(name)
            if package == _PACKAGE:
                _add_module(module, classes, used)
            else:
                _add(name, vars(module), callable)
    for module, names in used.items():
        _watch(module.__name__, vars(module), frozenset(names))
    if _record.loaded != len(sys.modules):
        _record.loaded = len(sys.modules)
        there = {n: sys.modules[n] for n in _record.modules & sys.modules.keys()}  # one may be gone
        modules = _Watched("sys.modules", sys.modules, MappingProxyType(there), frozenset(there))
        _record.watched[id(sys.modules)] = modules
        _add("builtins", vars(builtins))
        if has_tags():  # at once, so that they are next to each other: a fork copies each page that it touches
            new = [*_record.watched][len(_record.tags) :]
            _record.tags += [ctypes.c_uint64.from_address(key + TAG) for key in new]
    _record.versions = [tag.value for tag in _record.tags]
    _watch_edits()  # at last: the hook is called for each function that is looked into


def _newest_modules() -> list[str]:
    """Return the modules that are loaded since `record`."""
    return [*itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _record.loaded))]


def begin(root: Path, operators: Iterable[str]) -> Callable[..., None]:
    """Compare from now on. What has changed since `record` was changed by this package, and is remembered instead.

    Returns `require_unchanged`, which then also compares this module. `last`: it is the last call.
    """
    for old in _changed_dictionaries():
        now_there = replace(old, before=MappingProxyType({**old.content}), names=old.names & old.content.keys())
        _record.watched[id(old.content)] = now_there
    record()
    _record.edits.clear()
    _record.root, _record.operators, _record.hooks = root, tuple(operators), running_now()
    own, now, compares, place, message = dict(globals()), globals(), require_unchanged, _place, _message
    code, record_now, error = compares.__code__, _record, SpecError
    watched, versions = [*_record.watched.values()], [*_record.versions]

    def require(*, declared: bool = False, last: bool = False) -> None:
        same = record_now.root is root and compares.__code__ is code and record_now.versions == versions
        try:
            changed = [name for name in own if now.get(name) is not own[name]]
            if not same or [*record_now.watched.values()] != watched:
                changed = ["_record"]
            if not changed:
                compares(declared=declared)
                return
            record_now.root = root
            where = place(changed[0], None)
            raise error(message([f"{where}: replaces {__name__}.{changed[0]}"]))
        finally:
            if last:
                record_now.root = None

    return require


def require_unchanged(*, declared: bool = False) -> None:
    """Raise SpecError if code of the project has changed, since `begin`, what judges it. `declared`: only spec.py and
    cases.py have been executed since."""
    if _record.root is None:
        return
    found = [*_record.edits]
    for watched in _changed_dictionaries():
        found += [f"{_place(name, now)}: replaces {name}" for name, now in watched.changed()]
    if declared:
        found += [f"{_place(name, _NOTHING)}: replaces {name}" for name in _changed_late()]
    for name, cell, before in _record.cells:
        if cell.cell_contents is not before:
            found.append(f"{_place('cell_contents', cell.cell_contents)}: changes {name}.__closure__")
    for name in left(_record.hooks, declared=declared):
        found.append(f"{_place(name, _NOTHING)}: {MESSAGES[name]}")
    if found:
        raise SpecError(_message(found))


def _message(changes: Iterable[str]) -> str:
    why = (
        "which judges the operator, so that any kernel could pass. "
        "A file of an operator only defines values and functions of its own. Remove the change"
    )
    return "\n".join(f"{line}, {why}" for line in dict.fromkeys(changes))


def _changed_dictionaries() -> list[_Watched]:
    """Return the dictionaries that may have changed since `record`, by their versions where CPython has them."""
    if not _record.tags:
        return [*_record.watched.values()]
    now = [tag.value for tag in _record.tags]
    if now == _record.versions:
        return []
    everything = [*_record.watched.values()]
    return [everything[n] for n, (a, b) in enumerate(zip(now, _record.versions, strict=True)) if a != b]


def _add_module(module: ModuleType, added: set[type], used: Mapping[ModuleType, set[str]]) -> None:
    """Add a module of this package, its classes but those `added` before, and its constants; to `used`, what it uses of
    other modules."""
    content = vars(module)
    _add(module.__name__, content)
    names_used = _names_used(content)
    for name, value in [*content.items()]:
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] != _PACKAGE:
                there = vars(value)
                new = [n for n in names_used - used[value] if there.get(n) is not None]
                used[value].update(new)
                for one in new:
                    if isinstance(there[one], type):
                        _add_class(there[one], added)
        elif isinstance(value, type):
            _add_class(value, added)
        elif name.lstrip("_").isupper():
            if type(value) is dict:
                _add(f"{module.__name__}.{name}", value)
            elif is_dataclass(value):
                _add(f"{module.__name__}.{name}", vars(value))


def _add_class(cls: type, added: set[type]) -> None:
    if cls.__flags__ & _HEAP_TYPE and cls not in added:
        added.add(cls)
        (content,) = gc.get_referents(vars(cls))  # of a view of it
        shown = f"{cls.__module__}.{cls.__qualname__}"
        _add(shown, content, _is_code, closed=shown.startswith(f"{_PACKAGE}."))


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, _MEMBERS)


def _add(
    shown: str, content: dict[str, Any], counts: Callable[[Any], bool] | None = None, *, closed: bool = False
) -> None:
    """Add a dictionary, and what its functions have that can be changed in place. `counts`: the values that count."""
    known = _record.watched.get(id(content))
    names = frozenset(name for name, value in content.items() if counts(value)) if counts else frozenset(content)
    names -= {"__builtins__"}
    if known and names <= known.names:
        return
    _watch(shown, content, names, closed=closed)
    ufunc = getattr(sys.modules.get("numpy"), "ufunc", None)
    for name, value in content.items():
        if (kind := type(value)) is FunctionType:
            if value.__kwdefaults__:
                _add(f"{shown}.{name}.__kwdefaults__", value.__kwdefaults__)
            for cell in value.__closure__ or ():
                with suppress(ValueError):  # it is empty
                    if callable(cell.cell_contents):
                        _record.cells.append((f"{shown}.{name}", cell, cell.cell_contents))
        elif kind is ufunc and hasattr(value, "__dict__"):  # since NumPy 2.4
            _add(f"{shown}.{name}", vars(value), closed=True)


def _watch(shown: str, content: dict[str, Any], names: frozenset[str], *, closed: bool = False) -> None:
    """Remember a dictionary as it is now, with the names that counted before."""
    known = _record.watched.get(id(content))
    names |= known.names if known else frozenset()
    _record.watched[id(content)] = _Watched(shown, content, MappingProxyType(dict(content)), names, closed)


def _names_used(content: Mapping[str, Any]) -> set[str]:
    """Return the names of attributes in the functions of a module, and in those inside them."""
    members = [*content.values()]
    for value in content.values():
        if isinstance(value, type) and value.__module__ == content["__name__"]:
            members += vars(value).values()
    functions = [getattr(m, _INSIDE[kind]) if (kind := type(m)) in _INSIDE else m for m in members]
    waiting = [f.__code__ for f in functions if type(f) is FunctionType and f.__globals__ is content]
    names = set[str]()
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting += [constant for constant in code.co_consts if type(constant) is CodeType]
    return names


def _changed_late() -> Iterator[str]:
    """Yield what the declaration has changed in modules that it was the first to import: what differs from a fresh
    import of those of this package, and functions of the project in those of others."""
    late = [name for name in _newest_modules() if name.startswith(f"{_PACKAGE}.")]
    for name in _newest_modules():
        for key, value in vars(sys.modules[name]).items() if name.partition(".")[0] in _WHOLE else ():
            if isinstance(value, FunctionType) and _is_project(Path(value.__code__.co_filename)):
                yield f"{name}.{key}"
    old = {name: sys.modules.pop(name) for name in late}
    for name, module in old.items():
        fresh = vars(import_module(name))
        for key, value in fresh.items():
            if not key.startswith("__") and _described(value) != _described(vars(module).get(key)):
                yield f"{name}.{key}"
        if "__path__" in fresh:  # a stage that imports a module later would take what has its name in the package
            added = [key for key, value in vars(module).items() if value is not old.get(f"{name}.{key}")]
            yield from (f"{name}.{key}" for key in added if key not in fresh)


def _described(value: object) -> object:
    """Return what is the same of a function, a class or a constant in each import of its module."""
    if isinstance(value, FunctionType):
        return value.__code__, repr(value.__defaults__), repr(value.__kwdefaults__), value.__code__.co_filename
    if isinstance(value, type):
        return {k: _described(v) for k, v in vars(value).items() if isinstance(v, FunctionType | property | type(None))}
    if isinstance(value, property):
        return _described(value.fget)
    return repr(value) if isinstance(value, int | float | str | tuple) else type(value).__name__


@functools.cache
def _watch_edits() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    """Note a change of a function in place, which no dictionary shows, with the line that makes it."""
    if _record.root is None:
        return
    if event in EVENTS:
        what = f"{OTHER} ({event})"
    elif event == "object.__setattr__" and args[1] in _EDITS and args[0].__module__ in sys.modules:
        what = f"changes {args[0].__module__}.{args[0].__qualname__}.{args[1]}"
        if _is_project(Path(getattr(sys.modules[args[0].__module__], "__file__", None) or _FOLDER)):
            return
    else:
        return
    frame = sys._getframe(1)
    path = Path(frame.f_code.co_filename)
    if _is_project(path):
        _record.edits.append(f"{path.relative_to(_record.root)}:{frame.f_lineno}: {what}")


def _is_project(path: Path) -> bool:
    root = _record.root
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts) or path.is_relative_to(_FOLDER)
    return root is not None and path.is_relative_to(root) and not installed


def _place(name: str, now: object) -> str:
    """Return the file and the line that replaced a name: the line that names it, in a file of the project."""
    assert _record.root
    last = re.escape(name.rpartition(".")[2])
    names = ("spec.py", "cases.py", "reference.py")
    files = [_record.root / "ops" / op / file for op in _record.operators for file in names]
    files += [Path(file) for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))]
    if isinstance(now, FunctionType):  # which a file of the project defines
        files.insert(0, Path(now.__code__.co_filename))
    for pattern in (rf"\b{last}\b['\"\])]*\s*(=[^=]|,.*\))", rf"\b{last}\b"):
        for path in filter(_is_project, files):
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(pattern, line):
                    return f"{path.relative_to(_record.root)}:{number}"
    shown = " and ".join(_record.operators) or "*"
    return f"ops/{shown}: a module that spec.py, cases.py or reference.py imports"
