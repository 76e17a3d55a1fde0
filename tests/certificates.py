"""Self-signed certificates for tests that speak TLS, made by the program openssl."""

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str) -> Path:
    """Make a certificate for `name`, such as `DNS:good.example` or `IP:127.0.0.1`.

    Return the file with its key and itself; `chain.pem` beside it has no key. Raises OSError
    without openssl, and CalledProcessError if that makes no certificate.
    """
    key, chain, whole = folder / "key.pem", folder / "chain.pem", folder / "whole.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={name}"]
    made = [*command.split(), *names, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(made, check=True, capture_output=True)
    whole.write_text(key.read_text() + chain.read_text())
    return whole
