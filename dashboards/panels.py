"""Panels of Grafana's classic dashboard format as plain dicts.

Guarantee: pure; the same arguments, the same JSON. The data source is always the variable
`${datasource}`, so that a file imports anywhere, provisioned or by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Panel = dict[str, Any]

WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"


def target(expr: str, legend: str, *, ref: str = "A", instant: bool = False, exemplar: bool = False) -> Panel:
    """One query of a panel."""
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "exemplar": exemplar,
        "expr": expr,
        "instant": instant,
        "legendFormat": legend,
        "range": not instant,
        "refId": ref,
    }


def targets(*queries: tuple[str, str], exemplar: bool = False) -> list[Panel]:
    """Queries A, B, ... from (expression, legend)."""
    return [
        target(expr, legend, ref=chr(ord("A") + place), exemplar=exemplar)
        for place, (expr, legend) in enumerate(queries)
    ]


def steps(*limits: tuple[str, float | None]) -> dict[str, Any]:
    """Thresholds from (colour, lower bound), lowest first; the first bound is None."""
    return {"mode": "absolute", "steps": [{"color": color, "value": bound} for color, bound in limits]}


def panel(kind: str, title: str, about: str, unit: str, queries: list[Panel], size: tuple[int, int]) -> Panel:
    """What all panels share; `size` is (width, height) in grid units."""
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": queries,
    }


def stat(title: str, about: str, unit: str, expr: str, limits: dict[str, Any]) -> Panel:
    """One number with a colour and a spark line."""
    made = panel("stat", title, about, unit, [target(expr, title)], (4, 4))
    made["fieldConfig"]["defaults"] |= {"thresholds": limits, "color": {"mode": "thresholds"}}
    made["options"] = {
        "colorMode": "background",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value",
    }
    return made


def graph(
    title: str, about: str, unit: str, queries: list[Panel], *, stacked: bool = False, width: int = 8
) -> Panel:
    """Lines over time, or stacked areas."""
    made = panel("timeseries", title, about, unit, queries, (width, 8))
    made["fieldConfig"]["defaults"] |= {
        "min": 0,
        "custom": {
            "drawStyle": "line",
            "fillOpacity": 60 if stacked else 10,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        },
    }
    made["options"] = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return made


def timeline(title: str, about: str, queries: list[Panel], words: Iterable[tuple[str, str]]) -> Panel:
    """Coloured strips; `words` are (text, colour) of the values 0, 1, ..."""
    made = panel("state-timeline", title, about, "none", queries, (12, 7))
    options = {
        str(number): {"color": color, "index": number, "text": text}
        for number, (text, color) in enumerate(words)
    }
    made["fieldConfig"]["defaults"] |= {
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": [{"type": "value", "options": options}],
        "thresholds": steps((GREEN, None)),
    }
    made["options"] = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return made


def table(title: str, about: str, queries: list[Panel], hidden: Iterable[str]) -> Panel:
    """The labels of the newest samples."""
    made = panel("table", title, about, "none", queries, (12, 7))
    made["options"] = {"cellHeight": "sm", "showHeader": True}
    made["transformations"] = [
        {"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True), "renameByName": {}}}
    ]
    for query in made["targets"]:
        query["format"] = "table"
    return made


def row(title: str) -> Panel:
    """A heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def placed(panels: Iterable[Panel]) -> list[Panel]:
    """The panels with ids from 1 and places from left to right; a full line begins a new one."""
    done: list[Panel] = []
    x = y = height = 0
    for number, made in enumerate(panels, start=1):
        width = made["gridPos"]["w"]
        if x + width > WIDTH:
            x, y, height = 0, y + height, 0
        height = max(height, made["gridPos"]["h"])
        done.append({**made, "id": number, "gridPos": {**made["gridPos"], "x": x, "y": y}})
        x += width
    return done


def source_variable() -> dict[str, Any]:
    """The choice of the Prometheus to ask."""
    return {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def query_variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice of label values, all by default."""
    return {
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "definition": query,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"qryType": 1, "query": query, "refId": name},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
    }


def dashboard(
    uid: str, title: str, about: str, variables: list[dict[str, Any]], panels: list[Panel]
) -> Panel:
    """A whole dashboard in the classic format."""
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["coolhead"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables},
        "panels": placed(panels),
    }
