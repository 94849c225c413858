"""Reads the rule files as they are written here: a narrow corner of YAML, line by line.

There is no YAML library among the dependencies; that nothing is overlooked is shown by promtool,
which counts the same number of rules in each file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"(?P<indent> *)(?P<dash>- )?(?P<key>\w+):(?: (?P<value>.*))?")


@dataclass
class Rule:
    """One rule; `kind` is alert or record."""

    kind: str
    name: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def expr(self) -> str:
        """The PromQL."""
        return self.fields["expr"]


def read(path: Path) -> list[Rule]:
    """The rules of a file, in order; nested keys (labels, annotations) are flattened."""
    rules: list[Rule] = []
    folded: tuple[Rule, str, int] | None = None
    for line in path.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if folded is not None and indent > folded[2]:
            rule, key, _ = folded
            rule.fields[key] = f"{rule.fields[key]} {line.strip()}".strip()
            continue
        folded = None
        match = _LINE.fullmatch(line)
        assert match, f"{path.name}: not understood: {line}"
        key, value = match["key"], match["value"] or ""
        if match["dash"] and key in ("alert", "record"):
            rules.append(Rule(key, value))
        elif value == ">-":
            rules[-1].fields[key] = ""
            folded = (rules[-1], key, indent)
        elif rules:
            rules[-1].fields |= _value(key, value)
    return rules


def _value(key: str, value: str) -> dict[str, str]:
    if value.startswith("{"):
        return dict(pair.split(": ", 1) for pair in value.strip("{}").split(", "))
    return {key: value.removeprefix('"').removesuffix('"')}
