"""What `pmset` prints, and IOKit's memory rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from coolhead_worker.admission.mac_power import (
    Pmset,
    PowerSource,
    charge_of,
    is_mains,
    low_power_of,
    source_of,
)
from tests.admission.maclib import StubPower

CHARGING = """Now drawing from 'AC Power'
 -InternalBattery-0 (id=24903779)\t80%; charging; 0:44 remaining present: true
"""
DESKTOP = "Now drawing from 'AC Power'\n"
ON_UPS = """Now drawing from 'UPS Power'
 -Back-UPS ES 700 (id=3407872)\t97%; discharging; 0:21 remaining present: true
"""

LAPTOP = """Battery Power:
 Sleep On Power Button 1
 lowpowermode         1
 standby              1
AC Power:
 Sleep On Power Button 1
 lowpowermode         0
 womp                 1
"""
PRO = """Battery Power:
 powermode            1
 sleep                1
AC Power:
 powermode            2
 sleep                0
"""
MINI = "AC Power:\n sleep                0\n powermode            0\n"
OLD = "AC Power:\n sleep                0\n"
BOTH_NAMES = "AC Power:\n lowpowermode         1\n powermode            0\n"
ALIKE = LAPTOP.replace("lowpowermode         0", "lowpowermode         1")


@pytest.mark.parametrize(
    ("text", "source", "charge"),
    [
        (CHARGING, "AC Power", 0.8),
        (DESKTOP, "AC Power", None),
        (ON_UPS, "UPS Power", None),  # the charge is the UPS's, not ours
        ("", None, None),
        ("pmset: illegal option", None, None),
    ],
)
def test_the_source_and_the_charge_are_in_pmset_batt(text, source, charge) -> None:
    assert (source_of(text), charge_of(text)) == (source, charge)


@pytest.mark.parametrize(
    ("text", "source", "low"),
    [
        (LAPTOP, "Battery Power", True),
        (LAPTOP, "AC Power", False),
        (LAPTOP, None, None),  # the sections differ and nobody says which is active
        (LAPTOP, "UPS Power", None),
        (ALIKE, None, True),
        (PRO, "Battery Power", True),
        (PRO, "AC Power", False),  # high power is not low power
        (MINI, "AC Power", False),
        (MINI, None, False),
        (OLD, "AC Power", None),
        (BOTH_NAMES, "AC Power", True),
        ("", "AC Power", None),
        ("rubbish\n lowpowermode x\n", "AC Power", None),
    ],
)
def test_low_power_is_read_from_the_section_of_the_active_source(text, source, low) -> None:
    assert low_power_of(text, source) is low


@pytest.mark.parametrize(
    ("source", "mains"),
    [("AC Power", True), ("Battery Power", False), ("UPS Power", None), (None, None)],
)
def test_only_two_sources_are_understood(source, mains) -> None:
    assert is_mains(source) is mains


def test_the_snapshot_is_released_after_its_text_was_read() -> None:
    library = StubPower("Battery Power")
    assert PowerSource(library, library).name() == "Battery Power"
    assert library.calls == ["copy", "type", "text", "release"]


@pytest.mark.parametrize("fault", ["no type", "text does not fit", "no snapshot"])
def test_a_source_that_iokit_does_not_tell_is_none_and_leaks_nothing(fault: str) -> None:
    library = StubPower(None if fault == "no type" else "AC Power")
    library.fits = fault != "text does not fit"
    library.has_snapshot = fault != "no snapshot"
    assert PowerSource(library, library).name() is None
    assert ("release" in library.calls) == library.has_snapshot


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `pmset` of our own, first on PATH."""
    path = tmp_path / "pmset"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


@pytest.mark.parametrize(
    ("script", "output"),
    [("echo asked $1 $2", "asked -g batt\n"), ("echo half; exit 1", ""), ("printf '\\377'", "�")],
)
def test_pmset_is_run_and_a_failure_is_silence(program: Path, script: str, output: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert Pmset().run("batt") == output


def test_a_machine_without_pmset_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Pmset().run("batt") == ""
