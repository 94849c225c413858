"""The endpoint over real sockets on loopback."""

from __future__ import annotations

import http.client
import logging
import socket
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coolhead.errors import NodeError
from coolhead_worker import exposition
from coolhead_worker.exposition import MetricsServer
from tests.metrics.conftest import Serve

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def ask(
    port: int, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def test_a_scraper_that_reads_openmetrics_gets_it_with_exemplars(serve: Serve) -> None:
    status, headers, body = ask(serve(), Accept=OPENMETRICS)
    assert status == 200
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")
    assert '# {job_id="job-1"}' in body


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", "*/*", "text/html"])
def test_everybody_else_gets_text(serve: Serve, accept: str) -> None:
    status, headers, body = ask(serve(), Accept=accept)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert 'coolhead_jobs_total{lane="bulk",outcome="succeeded"} 1.0' in body
    assert "job-1" not in body


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/livez/x", "/../metrics", "//", "/%00"])
def test_any_other_path_is_not_found(serve: Serve, path: str) -> None:
    assert ask(serve(), path)[0] == 404


def test_a_query_does_not_change_the_path(serve: Serve) -> None:
    assert ask(serve(), "/metrics?name[]=x")[0] == 200


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/livez", 200), ("/nothing", 404)])
def test_head_gives_the_headers_of_get_and_no_body(serve: Serve, path: str, status: int) -> None:
    port = serve()
    got, headers, body = ask(port, path, "HEAD")
    assert (got, body) == (status, "")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed_through_it(serve: Serve, method: str) -> None:
    assert ask(serve(), "/metrics", method)[0] == 501


def test_live_and_ready_follow_what_the_worker_says(serve: Serve) -> None:
    state = {"live": True, "ready": (False, "thermal serious\n(scripted)")}
    port = serve(live=lambda: state["live"], ready=lambda: state["ready"])
    assert ask(port, "/livez")[0] == 200
    status, _, body = ask(port, "/readyz")
    assert (status, body) == (503, "thermal serious (scripted)\n")
    state |= {"live": False, "ready": (True, "")}
    assert ask(port, "/livez")[0] == 503
    assert ask(port, "/readyz")[::2] == (200, "ready\n")


def test_a_question_that_raises_is_answered_with_an_error(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    port = serve(ready=lambda: 1 / 0)
    with caplog.at_level(logging.ERROR, "coolhead.metrics"):
        assert ask(port, "/readyz")[::2] == (500, "see the worker's log\n")
    assert ask(port, "/metrics")[0] == 200


@pytest.mark.parametrize(
    ("path", "given", "status"),
    [
        ("/metrics", None, 401),
        ("/metrics", "Bearer wrong", 401),
        ("/metrics", "Bearer s3cret ", 200),  # a header's white space is not part of it
        ("/metrics", "Basic s3cret", 401),
        ("/metrics", "Bearer s3cret", 200),
        ("/readyz", None, 401),
        ("/nothing", None, 401),
        ("/livez", None, 200),
    ],
)
def test_a_token_guards_all_but_livez(serve: Serve, path: str, given: str | None, status: int) -> None:
    headers = {} if given is None else {"Authorization": given}
    got, answer, _ = ask(serve(token="s3cret"), path, **headers)
    assert got == status
    assert (answer["WWW-Authenticate"] == "Bearer") == (status == 401)


def test_idle_clients_hold_up_nobody(serve: Serve) -> None:
    port = serve()
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    try:
        for half in idle[:25]:
            half.sendall(b"GET /met")
        started = time.monotonic()
        assert ask(port)[0] == 200
        assert time.monotonic() - started < 3
    finally:
        for connection in idle:
            connection.close()


def test_a_silent_client_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition._Handler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", serve()), timeout=5) as client:
        assert client.recv(1) == b""


class Broken(Collector):
    """Fails after its first family."""

    def describe(self) -> Iterator[Metric]:
        yield Metric("broken", "", "gauge")

    def collect(self) -> Iterator[Metric]:
        yield Metric("broken", "", "gauge")
        raise RuntimeError("the sensor said: secret text")


def test_a_collector_that_raises_costs_only_its_own_series(
    registry: CollectorRegistry, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register(Broken())
    port = serve()
    with caplog.at_level(logging.ERROR, "coolhead.metrics"):
        for _ in range(3):
            status, _, body = ask(port)
            assert status == 200
            assert "coolhead_jobs_total" in body
            assert "broken" not in body
    assert [record.getMessage() for record in caplog.records] == [
        "collector Broken fails with RuntimeError: its series are missing"
    ]


def test_a_reply_is_one_write(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    setup = exposition._Handler.setup

    def counting(handler: exposition._Handler) -> None:
        setup(handler)
        write = handler.wfile.write
        handler.wfile.write = lambda data: (writes.append(len(data)), write(data))[1]  # type: ignore[method-assign,assignment,return-value,func-returns-value]

    monkeypatch.setattr(exposition._Handler, "setup", counting)
    _, headers, body = ask(serve())
    assert len(writes) == 1
    assert writes[0] > len(body) == int(headers["Content-Length"])


def test_a_port_in_use_is_a_one_line_error(registry: CollectorRegistry, serve: Serve) -> None:
    port = serve()
    with pytest.raises(NodeError, match=rf"127\.0\.0\.1:{port}.*choose another metrics_port"):
        MetricsServer(registry, "127.0.0.1", port).start()


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("203.0.113.7", 0), ("", 70000)])
def test_an_address_that_is_not_ours_is_a_one_line_error(
    registry: CollectorRegistry, host: str, port: int
) -> None:
    with pytest.raises(NodeError, match="can't serve metrics"):
        MetricsServer(registry, host, port).start()


def test_a_closed_server_refuses_and_its_port_is_free_again(registry: CollectorRegistry) -> None:
    server = MetricsServer(registry, "127.0.0.1", 0)
    port = server.start()
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        ask(port)
    again = MetricsServer(registry, "127.0.0.1", port)
    assert again.start() == port
    again.close()


def test_it_listens_on_ipv6_too(registry: CollectorRegistry) -> None:
    server = MetricsServer(registry, "::1", 0)
    try:
        port = server.start()
    except NodeError:
        pytest.skip("no IPv6 on this machine")
    with socket.create_connection(("::1", port), timeout=5) as client:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.0 200"
    server.close()
