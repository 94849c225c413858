"""How a worker is started by launchd and by systemd."""

from __future__ import annotations

import configparser
import plistlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ops.conftest import OPS

PLIST = OPS / "launchd" / "com.coolhead.worker.plist"
UNIT = OPS / "systemd" / "coolhead-worker.service"
NEWSYSLOG = OPS / "newsyslog" / "coolhead.conf"
WORKER = "/opt/coolhead/current/bin/coolhead-worker"

# launchd ignores what it does not know, so a key that is written wrongly is found only here.
# From the manual page launchd.plist(5).
PLIST_KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "UserName": str,
    "WorkingDirectory": str,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "LegacyTimers": bool,
    "EnvironmentVariables": dict,
    "SoftResourceLimits": dict,
    "Umask": int,
    "StandardOutPath": str,
    "StandardErrorPath": str,
}
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "SystemCallArchitectures": "native",
    "DynamicUser": "yes",
    "UMask": "0077",
}


@pytest.fixture(scope="module")
def plist() -> dict[str, object]:
    with PLIST.open("rb") as file:
        return dict(plistlib.load(file))


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return dict(parser["Service"]) | dict(parser["Unit"])


def test_the_plist_has_only_keys_launchd_knows_with_their_types(plist: dict[str, object]) -> None:
    assert {key: type(value) for key, value in plist.items()} == PLIST_KEYS
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert plist["SoftResourceLimits"] == {"NumberOfFiles": 4096}


def test_the_daemon_is_neither_slowed_down_nor_killed_early_nor_root(plist: dict[str, object]) -> None:
    assert plist["ProcessType"] == "Interactive"
    assert plist["LegacyTimers"] is True
    assert plist["ExitTimeOut"] == 60
    assert plist["ThrottleInterval"] == 15
    assert plist["UserName"] not in ("", "root")
    assert plist["Umask"] == 0o077
    assert plist["Label"] == PLIST.stem


def test_the_daemon_gets_the_environment_launchd_does_not_give(plist: dict[str, object]) -> None:
    environment = plist["EnvironmentVariables"]
    assert isinstance(environment, dict)
    assert set(environment) == {"GGML_METAL_RESIDENCY_KEEP_ALIVE_S", "HOME", "PATH", "PYTHONUNBUFFERED"}
    assert all(isinstance(value, str) for value in environment.values())
    assert not re.search("password|token|redis", PLIST.read_text().split("<dict>", 1)[1], re.IGNORECASE)


def test_launchd_and_systemd_start_the_same_command(
    plist: dict[str, object], service: dict[str, str]
) -> None:
    assert plist["ProgramArguments"] == [WORKER, "run", "--config", "/opt/coolhead/etc/worker.toml"]
    assert shlex.split(service["ExecStart"]) == [WORKER, "run", "--config", "/etc/coolhead/worker.toml"]


def test_the_unit_is_hardened(service: dict[str, str]) -> None:
    assert {key: service.get(key) for key in HARDENING} == HARDENING
    assert service["SystemCallFilter"] == "~@privileged"  # the last of two lines; see the next test
    assert "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged\n" in UNIT.read_text()


def test_the_unit_lets_a_worker_drain_and_restarts_only_crashes(service: dict[str, str]) -> None:
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")
    assert int(service["TimeoutStopSec"]) >= 60
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    environment = dict(word.split("=", 1) for word in service["Environment"].split())
    assert environment["XDG_STATE_HOME"] == "/var/lib"  # where StateDirectory puts us


def installed(path: Path, folder: Path) -> Path:
    """A copy whose program exists on this machine, which is all that verify asks of it."""
    copy = folder / path.name
    copy.write_text(path.read_text().replace(WORKER, str(shutil.which("env"))))
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    done = analyze("verify", installed(UNIT, tmp_path))
    # It leaves with 0 also when it has not understood a key: what counts is that it is silent.
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_key_would_be_noticed(tmp_path: Path) -> None:
    unit = installed(UNIT, tmp_path)
    unit.write_text(unit.read_text().replace("TimeoutStopSec", "TimeoutStopSecs"))
    assert "TimeoutStopSecs" in analyze("verify", unit).stderr


def test_systemd_counts_the_unit_as_well_hardened(tmp_path: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=20", installed(UNIT, tmp_path))
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_log_that_launchd_writes_is_the_one_that_is_rotated(plist: dict[str, object]) -> None:
    lines = [line.split() for line in NEWSYSLOG.read_text().splitlines() if not line.startswith("#")]
    ((path, owner, mode, count, size, when, flags),) = lines
    assert {path} == {plist["StandardErrorPath"], plist["StandardOutPath"]}
    assert owner.split(":")[0] == plist["UserName"]
    assert re.fullmatch("[0-7]{3}", mode)
    assert int(count) > 0
    assert int(size) > 0
    assert (when, flags) == ("*", "N")
