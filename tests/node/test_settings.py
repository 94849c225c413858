"""Flag over environment over file over default; what nobody knows is refused with a suggestion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coolhead.errors import InvalidSettings
from coolhead_worker.settings import load_settings

FAST = {"fast": {"path": "/m.gguf"}}


def test_flags_win_over_environment_over_file_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "worker.toml"
    config.write_text('node = "file"\nbatch_max = 3\nthreads = 3\n[fast]\npath = "/file.gguf"\n')
    monkeypatch.setenv("COOLHEAD_NODE", "environment")
    monkeypatch.setenv("COOLHEAD_THREADS", "5")
    settings = load_settings({"node": "flag"}, config)
    assert (settings.node, settings.threads, settings.batch_max) == ("flag", 5, 3)
    assert settings.fast.path == Path("/file.gguf")
    assert settings.lease_s == 15.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('nodes = "x"', "unknown setting 'nodes': did you mean node?"),
        ("lease_s = -1", "lease_s"),
        ("lease_s = nan", "lease_s"),
        ("batch_max = 0", "batch_max"),
        ('mode = "hot"', "mode"),
        ("keep_warm_s = -1", "keep_warm_s"),
        ("memory_hold_s = 0", "memory_hold_s"),
        ('mlock = "maybe"', "mlock"),
        ('[fast]\nfile = "x"', "fast"),
        ("= broken", "worker.toml"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "worker.toml"
    config.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load_settings(FAST, config)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"COOLHEAD_NOED": "x"}, "unknown variable COOLHEAD_NOED: did you mean COOLHEAD_NODE?"),
        ({"COOLHEAD_FAST__PATH": "x", "COOLHEAD_CONFIG": "y"}, ""),
        ({"OTHER": "x"}, ""),
    ],
)
def test_an_unknown_variable_of_ours_is_refused(environment: dict[str, str], says: str) -> None:
    if not says:
        assert load_settings(FAST, None, environment)
        return
    with pytest.raises(InvalidSettings) as caught:
        load_settings(FAST, None, environment)
    assert str(caught.value) == says


def test_a_value_that_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COOLHEAD_LANES", "interactive,bulk")
    with pytest.raises(InvalidSettings, match="lanes"):
        load_settings(FAST, None)


@pytest.mark.parametrize(("flags", "says"), [({}, "no fast model"), ({"fast": {"path": 7}}, "fast")])
def test_a_worker_needs_a_fast_model(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        load_settings(flags, None)


def test_models_are_locked_and_kept_as_suits_the_machine_unless_told_otherwise() -> None:
    settings = load_settings(FAST, None)
    assert (settings.mlock, settings.keep_warm_s, settings.memory_hold_s) == (True, None, 60.0)
    assert settings.golden is None
