"""TLS before a PostgreSQL, and certificates made for one test.

The PostgreSQL of the tests is built without TLS. The front speaks PostgreSQL's own beginning of it (SSLRequest, `S`, handshake) and passes
on what comes out, so that what a client sees is a server with the certificate that it was given, or one without TLS.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
CHUNK_BYTES = 65_536


class Authority:
    """Somebody who signs certificates; ``file`` is their own, for those who trust them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._own = self._signed(self._key.public_key(), name, [(basic, True)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def server(self, address: str) -> ssl.SSLContext:
        """Return what a server at this address, or of this name, needs."""
        try:
            named: x509.GeneralName = x509.IPAddress(ip_address(address))
        except ValueError:
            named = x509.DNSName(address)
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(key.public_key(), address, [(x509.SubjectAlternativeName([named]), False)])
        file = self._folder / f"{self._name}-{address}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _signed(
        self, key: ec.EllipticCurvePublicKey, name: str, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Front:
    """Stands before the server of a dsn, with threads of its own; `handshakes` counts how often TLS began."""

    def __init__(self, dsn: str, context: ssl.SSLContext | None) -> None:
        self._parts = urlsplit(dsn)
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self.handshakes = 0

    @property
    def dsn(self) -> str:
        """The address of the same database by way of the front."""
        port = self._listening.getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}"))

    def start(self) -> None:
        self._threads[0].start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is being stopped
            while True:
                client, _ = self._listening.accept()
                self._open.add(client)
                self._run(self._serve, client)

    def _run(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if client.recv(len(SSL_REQUEST), socket.MSG_PEEK) == SSL_REQUEST:
                client.recv(len(SSL_REQUEST))
                client.sendall(b"N" if self._context is None else b"S")
                if self._context is not None:
                    client = self._context.wrap_socket(client, server_side=True)
                    self._open.add(client)
                    self.handshakes += 1
            server = socket.create_connection((self._parts.hostname, self._parts.port))
        except OSError:  # the client wanted no such server
            client.close()
            return
        self._open.add(server)
        self._run(_pump, server, client)
        _pump(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(CHUNK_BYTES):
            target.sendall(piece)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_front(dsn: str, context: ssl.SSLContext | None) -> Iterator[Front]:
    """A front; without a ``context``, as a server that knows no TLS."""
    front = Front(dsn, context)
    front.start()
    try:
        yield front
    finally:
        front.stop()
