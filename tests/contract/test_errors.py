"""The tree of errors is what its docstring draws, and every error is one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead import errors
from coolhead.errors import CoolheadError, one_line


def below(kind: type[CoolheadError]) -> Iterator[type[CoolheadError]]:
    """The product's errors; a benchmark may have some of its own."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("coolhead"):
            yield from below(child)


ALL = list(below(CoolheadError))
every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)


def drawn() -> list[tuple[str, str]]:
    """(class, parent) as drawn, from the depth of the branches."""
    assert errors.__doc__
    path: list[str] = []
    pairs = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^ {4}((?:[│ ] {3})*)(?:[├└]── )?([A-Z]\w+)", line)
        if not found or (found.group(2) != "CoolheadError" and "── " not in line):
            continue
        depth = len(found.group(1)) // 4 + ("── " in line)
        path[depth:] = [found.group(2)]
        pairs.append((found.group(2), path[depth - 1] if depth else ""))
    return pairs


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    real = {
        (kind.__name__, next((base.__name__ for base in kind.__bases__ if base in ALL), "")) for kind in ALL
    }
    assert len(drawn()) == len(set(drawn())) == len(ALL) > 30
    assert set(drawn()) == real


@every
def test_every_error_has_a_default_message_of_one_line(kind: type[CoolheadError]) -> None:
    assert str(kind()) == (kind.__doc__ or "").strip()
    assert len(str(kind()).splitlines()) == 1


@every
@given(message=st.text(min_size=1))
def test_every_message_is_one_line(kind: type[CoolheadError], message: str) -> None:
    assert len(str(kind(message)).splitlines()) <= 1


@every
def test_every_error_has_its_name_as_code_and_a_known_exit_code(kind: type[CoolheadError]) -> None:
    assert kind("x").code == kind.__name__
    assert kind.exit_code in (1, 2, 3)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.ContractError, ValueError),
        (errors.WaitTimeout, TimeoutError),
        (errors.JobNotFound, LookupError),
        (errors.DecodeTimeout, TimeoutError),
    ],
)
def test_errors_are_also_what_python_calls_them(kind: type[CoolheadError], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


@given(st.text())
def test_folding_keeps_every_word(text: str) -> None:
    assert one_line(text).split() == text.split()
