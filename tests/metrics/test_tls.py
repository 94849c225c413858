"""The endpoint over TLS."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from coolhead.errors import NodeError
from coolhead_worker.exposition import MetricsServer
from tests.metrics.conftest import Serve


def ask(port: int, certificate: Path, path: str = "/metrics") -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def test_clients_that_never_shake_hands_hold_up_nobody(serve: Serve, certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    port = serve(certificate=chain, key=key)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    try:
        started = time.monotonic()
        status, body = ask(port, chain)
        assert status == 200
        assert "coolhead_build_info" in body
        assert time.monotonic() - started < 3
    finally:
        for connection in idle:
            connection.close()


def test_a_client_that_speaks_plain_http_gets_nothing_and_breaks_nothing(
    serve: Serve, certificate: tuple[Path, Path]
) -> None:
    chain, key = certificate
    port = serve(certificate=chain, key=key)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert not client.recv(100).startswith(b"HTTP")
    assert ask(port, chain, "/livez") == (200, "ok\n")


@pytest.mark.parametrize("name", ["missing.crt", "empty.crt"])
def test_a_certificate_that_cannot_be_read_is_a_one_line_error(
    registry: CollectorRegistry, tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty.crt").touch()
    server = MetricsServer(registry, "127.0.0.1", 0, certificate=tmp_path / name)
    with pytest.raises(NodeError, match=f"metrics certificate .*{name}"):
        server.start()
