"""The worker's HTTP endpoint: /metrics, /livez, /readyz.

Guarantee: a client that connects and says nothing, or says it slowly, holds up nobody (also not in
the middle of a TLS handshake) and is dropped after `CLIENT_TIMEOUT_S`; a collector that raises
costs its own series, never the scrape; each reply is one write. Loopback unless told otherwise.
With a token everything but /livez needs it.
"""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coolhead.errors import NodeError, one_line

CLIENT_TIMEOUT_S = 5.0
STOP_CHECK_S = 0.25  # how soon close() is noticed; a wake-up of an idle laptop each time
TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger("coolhead.metrics")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a path answers."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    challenge: bool = False

    def encode(self, *, with_body: bool) -> bytes:
        """The whole reply as HTTP/1.0, so that it is one write."""
        lines = [
            f"HTTP/1.0 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if self.challenge:
            lines.append("WWW-Authenticate: Bearer")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + self.body if with_body else head


class Unbroken(Collector):
    """A registry whose collectors may fail one by one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reported: set[type] = set()

    def collect(self) -> Iterator[Metric]:
        """The families of every collector that did not raise; a failing one is logged once."""
        # The registry's own collect() stops at the first exception, and nothing public lists them.
        for collector in list(self._registry._collector_to_names):
            try:
                families = list(collector.collect())
            except Exception as error:  # noqa: BLE001  # whatever it is, the other series are still good
                self._report(type(collector), error)
            else:
                yield from families

    def _report(self, kind: type, error: Exception) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            _log.error(
                "collector %s fails with %s: its series are missing", kind.__name__, type(error).__name__
            )


@dataclass(frozen=True)
class Site:
    """What the paths answer; knows nothing of sockets."""

    registry: CollectorRegistry
    live: Callable[[], bool]
    ready: Callable[[], tuple[bool, str]]
    token: str | None = None
    _families: Unbroken = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_families", Unbroken(self.registry))

    def answer(self, path: str, accept: str, authorization: str) -> Reply:
        """The reply to a GET or HEAD."""
        path = path.partition("?")[0]
        if path == "/livez":
            return self._live()
        if not self._allowed(authorization):
            return Reply(HTTPStatus.UNAUTHORIZED, b"a bearer token is needed\n", challenge=True)
        if path == "/readyz":
            return self._ready()
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return Reply(HTTPStatus.OK, encode(self._families), content_type)
        return Reply(HTTPStatus.NOT_FOUND, b"there is /metrics, /livez and /readyz\n")

    def _allowed(self, authorization: str) -> bool:
        if self.token is None:
            return True
        given = authorization.strip().encode("latin-1", "replace")
        return hmac.compare_digest(given, b"Bearer " + self.token.encode())

    def _live(self) -> Reply:
        if self.live():
            return Reply(HTTPStatus.OK, b"ok\n")
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, b"the worker's loop has stopped\n")

    def _ready(self) -> Reply:
        is_ready, reason = self.ready()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        text = one_line(reason) or ("ready" if is_ready else "not ready")
        return Reply(status, f"{text}\n".encode())


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request; runs in a thread of its own."""

    timeout = CLIENT_TIMEOUT_S

    def setup(self) -> None:
        """Shake hands here, in the thread, after the time limit has been set."""
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()

    def do_GET(self) -> None:
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool) -> None:
        site = cast("_Server", self.server).site
        header = self.headers.get
        try:
            reply = site.answer(self.path, header("Accept", ""), header("Authorization", ""))
        except Exception:  # noqa: BLE001  # a fault of ours must not leave a scraper without a reply
            _log.exception("no answer for a request")
            reply = Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the worker's log\n")
        self.wfile.write(reply.encode(with_body=with_body))

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


class _Server(ThreadingHTTPServer):
    """A thread for each connection; none of them keeps the process alive."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], site: Site) -> None:
        self.site = site
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer looks up the host's full name here, which takes seconds where DNS is slow.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a handshake that failed, is no event."""


class MetricsServer:
    """Serves a registry over HTTP, or HTTPS with `certificate` and `key`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        host: str = "127.0.0.1",
        port: int = 9464,
        live: Callable[[], bool] = lambda: True,
        ready: Callable[[], tuple[bool, str]] = lambda: (True, ""),
        *,
        token: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        """Nothing is opened before `start`.

        Args:
            registry: what /metrics shows.
            host: address to listen on.
            port: 0 for any free port.
            live: whether the worker's loop still turns; called from other threads.
            ready: whether jobs are taken, and in one line why not; called from other threads.
            token: when given, needed as `Authorization: Bearer` for all but /livez.
            certificate: PEM chain; turns on TLS (1.2 or newer).
            key: PEM key; None when it is in the certificate's file.
        """
        self._site = Site(registry, live, ready, token)
        self._address = (host, port)
        self._certificate, self._key = certificate, key
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Begin to serve; returns the port.

        Raises:
            NodeError: the address is in use or not ours, or the certificate can't be read.
        """
        context = self._tls()
        try:
            server = _Server(self._address, self._site)
        except (OSError, OverflowError) as error:
            host, port = self._address
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise NodeError(
                f"can't serve metrics on {host}:{port}: {why}; choose another metrics_port"
            ) from None
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": STOP_CHECK_S}, name="metrics", daemon=True
        )
        self._thread.start()
        return int(server.server_address[1])

    def close(self) -> None:
        """Stop listening; harmless when not started or closed before."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None

    def _tls(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key)
        except OSError as error:  # ssl.SSLError is one
            raise NodeError(f"metrics certificate {self._certificate}: {one_line(str(error))}") from None
        return context
