"""Recording rules, alerts, the scrape configuration and the runbook."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.ops.conftest import OPS, ROOT, RULES, Promtool
from tests.ops.promql import faults, names, vocabulary
from tests.ops.rulefile import Rule, read

FILES = sorted(RULES.glob("*.rules.yml"))
ALL = [rule for path in FILES for rule in read(path)]
ALERTS = [rule for rule in ALL if rule.kind == "alert"]
KNOWN = vocabulary([rule.name for rule in ALL if rule.kind == "record"])
SCENARIOS = OPS / "prometheus" / "tests" / "alerts.test.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"


def named(rules: list[Rule]) -> list[str]:
    return [rule.name for rule in rules]


@pytest.mark.parametrize("rule", ALL, ids=named(ALL))
def test_a_rule_names_only_what_exists(rule: Rule) -> None:
    assert faults(rule.expr, KNOWN) == []


@pytest.mark.parametrize("rule", ALL, ids=named(ALL))
def test_one_letter_less_in_a_name_is_noticed(rule: Rule) -> None:
    for name in names(rule.expr) - {"up"}:
        assert faults(rule.expr.replace(name, name[:-1]), KNOWN), name


@pytest.mark.parametrize("alert", ALERTS, ids=named(ALERTS))
def test_an_alert_says_what_it_is_how_bad_and_what_to_do(alert: Rule) -> None:
    assert alert.name.startswith("Coolhead")
    assert alert.fields["severity"] in ("page", "ticket", "none")
    assert alert.fields["summary"].endswith(".")
    assert alert.fields["description"].endswith(".")
    assert alert.fields["runbook_url"] == f"docs/runbook.md#{alert.name.lower()}"


def test_no_rule_has_the_name_of_another() -> None:
    assert len(set(named(ALL))) == len(ALL)


def test_every_recording_rule_is_used_or_named_in_a_test() -> None:
    used = "".join(rule.expr for rule in ALERTS) + SCENARIOS.read_text()
    waits = {"lane:coolhead_job_queue_wait_seconds:p95_5m", "tier:coolhead_inference_duration_seconds:p95_5m"}
    assert [rule.name for rule in ALL if rule.kind == "record" and rule.name not in used] == sorted(waits)


def test_the_runbook_has_one_section_for_each_alert_with_meaning_check_and_cure() -> None:
    text = RUNBOOK.read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [section.split("\n")[0] for section in sections if section]
    headings = {section.split("\n")[0]: section for section in sections}
    assert set(headings) == set(named(ALERTS))
    for section in headings.values():
        assert [word in section for word in ("**Meaning.**", "**Check.**", "**Do.**")] == [True] * 3
    for anchor in re.findall(r"\(#(\w+)\)", text):
        assert anchor in {name.lower() for name in headings}


def test_the_runbook_names_only_metrics_that_exist() -> None:
    for name in re.findall(r"coolhead_[a-z_]+", RUNBOOK.read_text()):
        assert name in KNOWN or f"{name}_count" in KNOWN, name


@pytest.mark.parametrize("alert", named(ALERTS))
def test_every_alert_fires_in_a_scenario(alert: str) -> None:
    assert f'alertname="{alert}"' in SCENARIOS.read_text()


def test_the_scenarios_name_only_series_that_exist() -> None:
    series = re.findall(r"series: '(\w+)(?:\{([^}]*)\})?'", SCENARIOS.read_text())
    assert len(series) > 40
    for name, labels in series:
        found = faults(f"count_over_time({name}{{{labels}}}[5m])", KNOWN)
        assert found == [], found


def test_promtool_accepts_the_configuration(promtool: Promtool) -> None:
    done = promtool("check", "config", OPS / "prometheus" / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FILES)} rule files found" in done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules_and_counts_what_these_tests_have_read(
    promtool: Promtool, path: Path
) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(read(path))} rules found" in done.stdout


def test_the_scenarios_of_the_alerts_come_true(promtool: Promtool) -> None:
    done = promtool("test", "rules", SCENARIOS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_broken_alerts_break_their_scenarios(promtool: Promtool, tmp_path: Path) -> None:
    broken = {
        "CoolheadNodeHot": ("thermal_level >= bool 2", "thermal_level >= bool 3"),
        "CoolheadModelFallback": ('backend="cpu"', 'backend="metal"'),
        "CoolheadQueueUnreachable": ('kind="redis"', 'kind="redi"'),
    }
    shutil.copytree(OPS / "prometheus", tmp_path / "prometheus")
    rules = tmp_path / "prometheus" / "rules" / "alerts.rules.yml"
    text = rules.read_text()
    for before, after in broken.values():
        assert before in text
        text = text.replace(before, after)
    rules.write_text(text)
    done = promtool("test", "rules", tmp_path / "prometheus" / "tests" / SCENARIOS.name)
    assert done.returncode != 0
    pairs = re.findall(r"exp: (.*)\n\s+got: (.*)", done.stdout + done.stderr)
    fired = [set(re.findall(r'alertname="(\w+)"', got)) for _, got in pairs]
    expected = [set(re.findall(r'alertname="(\w+)"', wanted)) for wanted, _ in pairs]
    assert set().union(*expected) - set().union(*fired) == set(broken)
