"""The dashboards: current, importable, and asking only for what workers export."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dashboards.build import BOARDS, render
from tests.ops.conftest import ROOT
from tests.ops.promql import faults, names, vocabulary

FOLDER = ROOT / "dashboards"
KNOWN = vocabulary()
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board["panels"]]
DRAWN = [panel for _, panel in PANELS if panel["type"] != "row"]
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in DRAWN
    for target in panel["targets"]
]
#: Grafana's own names, as a running Grafana would fill them in.
FILLED = (("$__rate_interval", "1m"), ("$job", ".*"), ("$node", ".*"), ("$lane", ".*"))


def filled(expr: str) -> str:
    for name, text in FILLED:
        expr = expr.replace(name, text)
    return expr


@pytest.mark.parametrize("name", BOARDS)
def test_the_committed_file_is_the_built_one(name: str) -> None:
    assert (FOLDER / name).read_text() == render(BOARDS[name])
    assert render(json.loads(render(BOARDS[name]))) == render(BOARDS[name])


def test_every_committed_dashboard_is_built() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == set(BOARDS)


@pytest.mark.parametrize("expr", QUERIES)
def test_a_query_names_only_what_exists(expr: str) -> None:
    assert faults(filled(expr), KNOWN) == []


@pytest.mark.parametrize("expr", QUERIES)
def test_one_letter_less_in_a_name_is_noticed(expr: str) -> None:
    for name in names(filled(expr)) - {"up"}:
        assert faults(filled(expr).replace(name, name[:-1]), KNOWN)


@pytest.mark.parametrize("expr", QUERIES)
def test_a_query_follows_the_choices_at_the_top(expr: str) -> None:
    for selector in re.findall(r"\{([^}]*)\}", expr):
        assert 'job=~"$job"' in selector
        assert 'node=~"$node"' in selector
    assert set(re.findall(r"\$\w+", expr)) <= {name for name, _ in FILLED}
    assert all(window == "$__rate_interval" for window in re.findall(r"\[([^\]]*)\]", expr))


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_a_dashboard_imports_anywhere(board: dict[str, Any]) -> None:
    assert board["schemaVersion"] == 41
    assert re.fullmatch(r"[a-z-]{1,40}", board["uid"])
    assert not board["refresh"].endswith("ms")
    assert int(board["refresh"].removesuffix("s")) >= 5
    sources = re.findall(r'"uid": "(\$[^"]*)"', render(board))
    assert set(sources) == {"${datasource}"}
    assert "__inputs" not in board
    assert "DS_" not in render(board)


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_variables_ask_for_labels_that_exist(board: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "node", "lane"]
    for variable in variables.values():
        if variable["type"] == "datasource":
            continue
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match
        expr, label = f"count_over_time({filled(match[1])}[1m])", match[2]
        assert faults(f"count by ({label}) ({expr})", KNOWN) == []
        assert variable["includeAll"]
        assert variable["multi"]


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_panels_have_ids_and_do_not_overlap(board: dict[str, Any]) -> None:
    panels = board["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("panel", DRAWN, ids=lambda panel: panel["title"])
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert [target["refId"] for target in panel["targets"]] == list("ABCD")[: len(panel["targets"])]
    assert all(target["legendFormat"] for target in panel["targets"])


def test_titles_are_not_used_twice() -> None:
    titles = [panel["title"] for _, panel in PANELS]
    assert len(set(titles)) == len(titles)
