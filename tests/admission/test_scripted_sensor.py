"""The file that plays a machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.sensors_scripted import ScriptedSensor, parse_script, write_script
from coolhead_worker.clock import ManualClock

LONG_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conditions"


@pytest.fixture
def sensor(path: Path, clock: ManualClock):
    made = ScriptedSensor(path, clock)
    yield made
    made.close()


@pytest.mark.parametrize("level", list(Thermal))
@pytest.mark.parametrize("form", ["{}", "{}\n", "  {}  \n\n"])
def test_a_word_is_a_level(sensor: ScriptedSensor, path: Path, level: Thermal, form: str) -> None:
    path.write_text(form.format(level.value))
    assert sensor.read() == Conditions(level, "scripted", read_at=1000.0)


def test_the_word_may_be_in_capitals(sensor: ScriptedSensor, path: Path) -> None:
    path.write_text("SERIOUS")
    assert sensor.read().thermal is Thermal.SERIOUS


def test_an_object_sets_any_field(sensor: ScriptedSensor, path: Path) -> None:
    given = {
        "thermal": "fair", "thermal_source": "a  b", "on_ac": False, "battery": 0.25,
        "low_power": True, "memory": "warn", "vanished": True,
    }  # fmt: skip
    path.write_text(json.dumps(given))
    assert sensor.read() == Conditions(
        Thermal.FAIR, "a b", on_ac=False, battery=0.25, low_power=True, memory=Memory.WARN, vanished=True,
        read_at=1000.0, low_power_source="scripted", memory_source="scripted", vanished_source="scripted",
    )  # fmt: skip


def test_what_an_object_leaves_out_is_unknown(sensor: ScriptedSensor, path: Path) -> None:
    path.write_text("{}")
    read = sensor.read()
    assert (read.thermal, read.memory, read.low_power, read.vanished) == ("unknown", "unknown", None, False)


INVALID = {
    "empty": b"",
    "another word": b"warm",
    "two words": b"nominal fair",
    "not JSON": b'{"thermal": ',
    "a list": b'["nominal"]',
    "a number": b"1",
    "an unknown field": b'{"thermal": "nominal", "fan": 3}',
    "our own field": b'{"read_at": 1}',
    "a level that is none": b'{"thermal": "warm"}',
    "a level that is a list": b'{"thermal": ["nominal"]}',
    "a flag that is a number": b'{"low_power": 1}',
    "a vanished that is null": b'{"vanished": null}',
    "a charge above one": b'{"battery": 80}',
    "a charge that is NaN": b'{"battery": NaN}',
    "a charge that is true": b'{"battery": true}',
    "a source that is long": b'{"thermal_source": "' + b"x" * 65 + b'"}',
    "a source that is a number": b'{"thermal_source": 5}',
    "not UTF-8": b"nomin\xffal",
    "NUL": b"nominal\0",
    "nested deeply": b'{"thermal":' * 10_000,
}


@pytest.mark.parametrize("content", INVALID.values(), ids=INVALID)
def test_invalid_content_is_unknown_and_vanished_only_after_a_valid_file(
    path: Path, clock: ManualClock, content: bytes
) -> None:
    path.write_bytes(content)
    fresh = ScriptedSensor(path, clock)
    first = fresh.read()
    assert (first.thermal, first.vanished) == (Thermal.UNKNOWN, False)
    path.write_text("nominal")
    assert fresh.read().vanished is False
    path.write_bytes(content)
    again = fresh.read()
    assert (again.thermal, again.vanished, again.vanished_source) == (Thermal.UNKNOWN, True, "scripted")
    path.write_text("fair")
    assert fresh.read() == Conditions(Thermal.FAIR, "scripted", read_at=1000.0)
    fresh.close()


def test_a_missing_file_is_unknown_and_vanished_when_it_had_been_there(
    sensor: ScriptedSensor, path: Path
) -> None:
    assert sensor.read().vanished is False
    path.write_text("serious")
    assert sensor.read().thermal is Thermal.SERIOUS
    path.unlink()
    assert (sensor.read().thermal, sensor.read().vanished) == (Thermal.UNKNOWN, True)


def test_a_folder_in_its_place_is_unknown(sensor: ScriptedSensor, path: Path) -> None:
    path.mkdir()
    assert sensor.read().thermal is Thermal.UNKNOWN


@given(st.text(max_size=60))
def test_no_text_is_nominal_but_the_word(text: str) -> None:
    try:
        level = parse_script(text).thermal
    except ValueError:
        return
    assert level is Thermal.UNKNOWN or text.strip().lower() == level.value


@pytest.mark.parametrize("change", ["write", "unlink", "replace", "touch"])
def test_a_change_of_the_file_ends_a_wait(sensor: ScriptedSensor, path: Path, sleeper, change: str) -> None:
    path.write_text("nominal")
    sensor.read()
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    if change == "write":
        path.write_text("serious")
    elif change == "unlink":
        path.unlink()
    elif change == "replace":
        write_script(path, "serious")
    else:
        os.utime(path, ns=(1, 1))
    assert waiting.ended()
    assert waiting.result is True


def test_a_file_that_appears_ends_a_wait(sensor: ScriptedSensor, path: Path, sleeper) -> None:
    sensor.read()
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    path.write_text("nominal")
    assert waiting.ended()


def test_a_change_between_read_and_wait_is_not_lost(sensor: ScriptedSensor, path: Path) -> None:
    path.write_text("nominal")
    sensor.read()
    path.write_text("critical")
    assert sensor.wait(LONG_S) is True
    assert sensor.read().thermal is Thermal.CRITICAL


def test_a_wake_ends_a_wait_on_an_unchanged_file(sensor: ScriptedSensor, path: Path, sleeper) -> None:
    path.write_text("nominal")
    sensor.read()
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    sensor.wake()
    assert waiting.ended()
    assert waiting.result is True


def test_an_unchanged_file_ends_a_wait_at_its_timeout(sensor: ScriptedSensor, path: Path) -> None:
    path.write_text("nominal")
    sensor.read()
    assert sensor.wait(0.12) is False
    assert sensor.wait(0.0) is False


def test_a_script_is_replaced_in_one_step(path: Path) -> None:
    write_script(path, "fair")
    before = path.stat().st_ino
    write_script(path, "serious")
    assert path.read_text() == "serious"
    assert path.stat().st_ino != before
    assert [entry.name for entry in path.parent.iterdir()] == ["conditions"]
