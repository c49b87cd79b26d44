"""A proxy that opens tunnels (CONNECT), all to one server, and the certificate of that server for any names."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.servers.server_process import HOST


class Tunnel:
    """Ends with the block.

    Args:
        port: that of the server on this machine to which all tunnels lead.
    """

    def __init__(self, port: int) -> None:
        # The hosts that clients asked for, in order.
        self.asked: list[str] = []
        tunnel = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                tunnel.asked.append(self.rfile.readline().split()[1].decode())
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                with socket.create_connection((HOST, port)) as server:
                    back = threading.Thread(target=_copy, args=(server, self.connection))
                    back.start()
                    _copy(self.connection, server)
                    back.join()

        self._server = _Server((HOST, 0), Handler)
        self.uri = f"http://{HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def certificate(folder: Path, names: Sequence[str]) -> tuple[Path, ssl.SSLContext]:
    """Return a new authority's file, and the context of a server that it certifies for these names."""
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lake tests")])
    own = _begun(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    issued = _begun(subject, issuer, key.public_key()).add_extension(alternatives, critical=False)
    bundle, server, secret = (folder / name for name in ("authority.pem", "server.pem", "key.pem"))
    for path, builder in ((bundle, own), (server, issued)):
        signed = builder.sign(authority, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    kinds = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    secret.write_bytes(key.private_bytes(*kinds, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server, secret)
    return bundle, context


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
    )
