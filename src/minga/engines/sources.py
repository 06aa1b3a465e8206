"""A function of a notebook as a script of its own, which other processes can run.

    text = script_of(train, {"epochs": 3})

Forking a notebook's process would copy torch's threads and the kernel's sockets in whatever state they are, and pickled
code runs whatever is in it. So the function travels as its source, with that of the functions and classes of the
notebook that it uses, the imports behind its names, and plain values. What can't travel like this is said before
anything starts, and what was sent can be read in the run's directory.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import math
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from minga.errors import UsageError

__all__ = ["check_plain", "script_of"]

_ADVICE = "make it inside the function, or give its plain values (numbers, strings, lists, dicts) in arguments={...}"

# What symtable takes for functions, and is gone through where it is written.
_COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")


def script_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """A script that calls the function; `UsageError` if it needs something that can't be sent."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(f"{function!r} is no function with a name; give one that is defined with 'def'")
    check_plain(f"the arguments of {function.__name__}", dict(arguments))
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise UsageError(f"{function.__name__}: {error}; give its arguments as arguments={{...}}") from None
    parts = _Parts(function.__globals__)
    parts.add(function.__name__, function)
    postponed = function.__code__.co_flags & __future__.annotations.compiler_flag
    paths = [str(Path(path).absolute()) for path in sys.path if not path.startswith((sys.base_prefix, sys.prefix))]
    return "\n".join(
        [
            f'"""{function.__name__}, as minga.launch has sent it to other processes."""',
            *(["from __future__ import annotations"] if postponed else []),
            "import sys",
            f"sys.path.extend(path for path in {paths!r} if path not in sys.path)",
            *parts.imports,
            *parts.values,
            *(f"\n\n{definition}" for definition in parts.definitions),
            "",
            'if __name__ == "__main__":',
            "    from minga.engines.scripts import call",
            "",
            f"    call({function.__name__}, {dict(arguments)!r})",
            "",
        ]
    )


def check_plain(what: str, value: Any) -> None:
    """`UsageError` unless a value is written in Python as it is."""
    if not _is_plain(value):
        raise UsageError(f"{what} can't be sent to other processes: {_short(value)}; {_ADVICE}")


def _expression_of(value: Any) -> tuple[str, str] | None:
    """A module and an expression, for values that notebooks often have at their top and `repr` can't write."""
    if isinstance(value, Path):
        return "pathlib", f"pathlib.Path({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return "math", "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    if isinstance(value, torch.device):
        return "torch", f"torch.{value!r}"
    return ("torch", repr(value)) if isinstance(value, torch.dtype) else None


class _Parts:
    """What a function needs, in the order in which it can be written down."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._known: set[str] = set()
        self.imports: list[str] = []
        self.values: list[str] = []
        self.definitions: list[str] = []

    def add(self, name: str, thing: Any) -> None:
        if name in self._known:
            return
        self._known.add(name)
        # Functions such as random.random are methods of an object that their module hides.
        module = getattr(thing, "__module__", None) or type(getattr(thing, "__self__", None)).__module__
        own = getattr(thing, "__name__", None)
        if isinstance(thing, ModuleType):
            self._import(f"import {thing.__name__}" + (f" as {name}" if name != thing.__name__ else ""))
        elif _is_plain(thing):
            self.values.append(f"{name} = {thing!r}")
        elif (expression := _expression_of(thing)) is not None:
            self._import(f"import {expression[0]}")
            self.values.append(f"{name} = {expression[1]}")
        elif module == "__main__" and own == "<lambda>":
            raise UsageError(
                f"the function uses {name!r}, a lambda, which has no source of its own; define it with 'def'"
            )
        elif module == "__main__" and isinstance(thing, FunctionType | type):
            written = thing.__name__
            if name != written and self._namespace.get(written) is thing:
                self.add(written, thing)  # one class of that name, not one for each of its names
            else:
                self._define(thing)
            if name != written:
                self.definitions.append(f"{name} = {written}")
        elif module and own and getattr(sys.modules.get(module), own, None) is thing:
            self._import(f"from {module} import {own}" + (f" as {name}" if name != own else ""))
        else:
            raise UsageError(
                f"the function uses {name!r}, which can't be sent to other processes: {_short(thing)}; {_ADVICE}"
            )

    def _import(self, line: str) -> None:
        if line not in self.imports:
            self.imports.append(line)

    def _define(self, thing: FunctionType | type) -> None:
        text = _source(thing)
        at_once, later = _globals_of(text)
        self._add_all(at_once - {thing.__name__})
        for name in _dotted(text):
            # `import torch` alone would not have torch.utils.data's like, where the notebook has imported them too.
            root, _, rest = name.partition(".")
            module = self._namespace.get(root)
            if isinstance(module, ModuleType):
                self._import_below(module.__name__, rest)
        self.definitions.append(text)
        # Not before: a class may use in its methods what is derived from it.
        self._add_all(later - {thing.__name__})

    def _add_all(self, names: set[str]) -> None:
        for name in sorted(names):
            if name in self._namespace:
                self.add(name, self._namespace[name])

    def _import_below(self, module: str, rest: str) -> None:
        for part in rest.split("."):
            module = f"{module}.{part}"
            if not isinstance(sys.modules.get(module), ModuleType):
                return
            self._import(f"import {module}")


def _source(thing: FunctionType | type) -> str:
    """The text of a function or class of the notebook, with its decorators."""
    if "<locals>" in thing.__qualname__:
        raise UsageError(f"{thing.__name__} is defined inside a function; define it in a cell of its own")
    found = next((text for place in _places(thing) if (text := _definition(thing, *place)) is not None), None)
    if found is None:
        raise UsageError(
            f"the source of {thing.__name__} can't be found; define it in a cell that does not begin with %%time or "
            "the like, or in a file and import it"
        )
    return found


def _places(thing: FunctionType | type) -> Iterator[tuple[str, int | None]]:
    """Files or cells, and lines in them, where it may be defined.

    Of a class those of its methods, as it does not know itself where it is from; else by its name, newest first.
    """
    for member in vars(thing).values() if isinstance(thing, type) else [thing]:
        function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
        if isinstance(function, FunctionType):  # generated ones, such as a dataclass', are from elsewhere
            yield function.__code__.co_filename, function.__code__.co_firstlineno
    if isinstance(thing, type):
        yield from ((name, None) for name in reversed(linecache.cache) if not Path(name).exists())
        if script := getattr(sys.modules["__main__"], "__file__", None):
            yield script, None


def _definition(thing: FunctionType | type, file: str, line: int | None) -> str | None:
    """What defines a function or class in a cell or file, around a line if there is one to go by."""
    lines = linecache.getlines(file)
    wanted = (ast.ClassDef,) if isinstance(thing, type) else (ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        nodes = list(ast.walk(ast.parse("".join(lines))))
    except SyntaxError:  # a cell with commands of the notebook's own
        return None
    for node in nodes:
        if not isinstance(node, wanted) or node.name != thing.__name__:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        fits = first <= line <= (node.end_lineno or first) if line is not None else _has_members_of(thing, node)
        if fits:
            text = "".join(lines[first - 1 : node.end_lineno])
            return textwrap.dedent(text) if node.col_offset else text  # which would change strings of several lines
    return None


def _has_members_of(thing: FunctionType | type, node: ast.AST) -> bool:
    """Whether a definition may be that of a class: an earlier one of the same name has other members."""
    assert isinstance(node, ast.ClassDef)
    written = {
        target.id
        for statement in node.body
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
        if isinstance(target, ast.Name)
    }
    return written <= {*vars(thing), *vars(thing).get("__annotations__", {})}


def _globals_of(text: str) -> tuple[set[str], set[str]]:
    """The names that a definition takes from around it: those that it needs at once, and those when it is called."""
    at_once: set[str] = set()
    later: set[str] = set()

    def look(table: symtable.SymbolTable, found: set[str]) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
        for child in table.get_children():
            called = child.get_type() == "function" and child.get_name() not in _COMPREHENSIONS
            look(child, later if called else found)

    look(symtable.symtable(text, "<cell>", "exec"), at_once)
    return at_once, later - at_once


def _dotted(text: str) -> Iterator[str]:
    """`a.b.c` wherever it is written."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            parts: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield ".".join([inner.id, *reversed(parts)])


def _is_plain(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"a {type(value).__name__}, {text[:60]}{'...' if len(text) > 60 else ''}"
