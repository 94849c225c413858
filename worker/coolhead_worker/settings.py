"""Everything about a node that an operator may choose, read once.

Guarantee: one frozen value; flag > environment (`COOLHEAD_*`) > TOML file > default; a key that
does not exist is refused with the nearest one that does, in the file and in the environment.
"""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from coolhead.errors import InvalidSettings, one_line
from coolhead.policy import Lane
from coolhead.questions import explain
from coolhead_worker.admission.gate import Mode

PREFIX = "COOLHEAD_"
#: Variables of ours that are no setting of the worker.
OTHER_VARIABLES = frozenset({"COOLHEAD_CONFIG", "COOLHEAD_CACHE", "COOLHEAD_DEBUG"})

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ModelSettings(BaseModel):
    """A GGUF file; `sha256` pins its content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    sha256: str | None = None
    name: str = ""


def _node_name() -> str:
    return socket.gethostname().split(".")[0] or "node"


class Settings(BaseSettings):
    """The settings of one worker. Times are in seconds."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__"
    )

    node: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = Field(default_factory=_node_name)
    redis_url: str = "redis://127.0.0.1:6379/0"
    fast: ModelSettings
    deep: ModelSettings | None = None
    tasks: Path | None = None
    fits: tuple[Path, ...] = ()
    lanes: tuple[Lane, ...] = (Lane.INTERACTIVE, Lane.BULK)
    mode: Mode = Mode.STANDARD
    sensor: Literal["auto", "scripted"] = "auto"
    scripted_path: Path | None = None
    # One core is left to the rest of the machine: llama.cpp's threads spin at barriers, and one that
    # has to share its core makes all of them wait.
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        default_factory=lambda: max(1, (os.cpu_count() or 1) - 1)
    )
    # On a CPU one job a call is cheapest: attention is quadratic in the tokens of a call.
    batch_max: Annotated[int, Field(ge=1, le=64)] = 1
    call_timeout_s: Seconds = 30.0
    # Locked weights are never paged out. Safe as a default: a refusal is a warning and no failure, a model
    # that would take more than half of the free memory is not locked, and the deep one is given up when
    # memory gets critical.
    mlock: bool = True
    # 0 for never; None for never on a CPU and 30 s on a GPU.
    keep_warm_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    # How long memory must have been normal before the deep model comes back.
    memory_hold_s: Seconds = 60.0
    # Known numbers of models of the operator's own: coolhead-worker selfcheck --record FILE.
    golden: Path | None = None
    lease_s: Seconds = 15.0
    idle_block_s: Seconds = 1.0
    reap_every_s: Seconds = 1.0
    put_back_rest_s: Seconds = 2.0
    max_deliveries: Annotated[int, Field(ge=1)] = 3
    max_attempts: Annotated[int, Field(ge=1)] = 6
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9464
    lock_file: Path = Field(default_factory=lambda: platformdirs.user_state_path("coolhead") / "node.lock")
    log_json: bool = False
    log_file: Path | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic-settings names them
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic-settings names them
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the TOML file; no `.env` and no secrets folder."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(
    flags: Mapping[str, Any], config: Path | None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """Read the settings.

    Args:
        flags: values from the command line; None values are left out.
        config: a TOML file, or None.
        environ: the environment, to refuse unknown `COOLHEAD_*` names.

    Raises:
        InvalidSettings: unknown key (with a suggestion), bad value, unreadable file.
    """
    _check_environment(environ)
    if config is not None and not config.is_file():
        raise InvalidSettings(f"no settings file {config}")
    values = {key: value for key, value in flags.items() if value is not None}
    # The file belongs to the class, not to a value: that is where its source looks.
    configured = type("Settings", (Settings,), {"model_config": SettingsConfigDict(toml_file=config)})
    try:
        settings: Settings = configured(**values)
    except ValidationError as error:
        raise InvalidSettings(_explain(error)) from None
    except (ValueError, SettingsError) as error:  # TOML syntax, an environment value that is not JSON
        raise InvalidSettings(f"{config or 'environment'}: {one_line(str(error))}") from None
    return settings


def _check_environment(environ: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | OTHER_VARIABLES
    for name in environ:
        plain = name.split("__")[0]
        if name.startswith(PREFIX) and not name.startswith("COOLHEAD_TEST_") and plain not in known:
            raise InvalidSettings(f"unknown variable {name}{_nearest(plain, known)}")


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r}{_nearest(name, set(Settings.model_fields))}"
    if first["type"] == "missing" and name == "fast":
        return "no fast model: give --fast FILE.gguf, or [fast] path in the settings file"
    return f"settings: {explain(error, 'settings')}"


def _nearest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]}?" if close else ""
