"""What figures say of the machine that they come from."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest

from coolhead_worker.bench.machine import this_machine

INTEL = """processor\t: 0
model name\t: Some Xeon
flags\t\t: fpu avx2 avx512f amx_bf16

processor\t: 1
model name\t: Other
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm bf16\n"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (INTEL, ("avx2", "avx512f", "amx_bf16")),
        (ARM, ("asimddp", "i8mm", "bf16")),
        ("", ()),
        ("gibberish", ()),
    ],
)
def test_only_flags_that_matter_to_matrices_are_told(
    tmp_path: Path, text: str, flags: tuple[str, ...]
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    assert this_machine(cpuinfo).flags == flags


def test_the_first_processor_gives_the_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(INTEL)
    machine = this_machine(tmp_path / "cpuinfo")
    assert machine.processor == "Some Xeon"
    assert str(machine).startswith("Some Xeon (avx2 avx512f amx_bf16), ")


def test_a_system_without_such_a_file_is_no_failure(tmp_path: Path) -> None:
    machine = this_machine(tmp_path / "none")
    assert machine.cores >= 1
    assert str(machine)


def test_no_name_of_a_host_or_user_is_in_it() -> None:
    # Not every name can be looked for: a host called "linux" would be found.
    said = json.dumps(this_machine().wire())
    assert set(json.loads(said)) == {"system", "processor", "cores", "flags", "python"}
    for name in (platform.node(), getpass.getuser()):
        assert f'"{name}"' not in said
