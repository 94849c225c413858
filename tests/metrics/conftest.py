"""A running endpoint, and a certificate for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from coolhead_worker import exposition
from coolhead_worker.exposition import MetricsServer
from tests.conftest import missing
from tests.metrics.samples import busy

# A file and not -addext: the openssl of macOS is LibreSSL.
REQUEST = """
[req]
prompt = no
distinguished_name = subject
x509_extensions = extensions
[subject]
CN = localhost
[extensions]
subjectAltName = DNS:localhost, IP:127.0.0.1
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyEncipherment, keyCertSign
"""

Serve = Callable[..., int]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def serve(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers on free ports; gives the port."""
    monkeypatch.setattr(exposition, "STOP_CHECK_S", 0.01)
    busy(registry)
    servers: list[MetricsServer] = []

    def start(**options: object) -> int:
        server = MetricsServer(registry, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key, a day long."""
    if shutil.which("openssl") is None:
        missing("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "server.crt", folder / "server.key"
    config = folder / "request.cnf"
    config.write_text(REQUEST)
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -config {config} -keyout {key} -out {chain}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return chain, key
