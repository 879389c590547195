"""The server over HTTPS, with a certificate that the test makes."""
import http.client
import json
import shutil
import socket
import ssl
import subprocess

import httpx
import openai
import pytest
from conftest import CONTEXT, Running, servers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run([shutil.which("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(paths[1]), "-out",
                    str(paths[0])], check=True, capture_output=True)
    return tuple(map(str, paths))


@pytest.fixture(scope="module")
def secure(model, certificate):
    with servers() as of:
        yield of(model, "--max-model-len", CONTEXT, "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1])


def trusting(certificate):
    return ssl.create_default_context(cafile=certificate[0])


def test_the_ready_line_says_https(secure):
    assert any("https://127.0.0.1:" in line for line in secure.printed)


def test_answers_and_streams(secure, certificate):
    client = openai.OpenAI(base_url=f"https://localhost:{secure.port}/v1", api_key="none",
                           http_client=httpx.Client(verify=trusting(certificate)))
    whole = client.completions.create(model="scripted", prompt="A", temperature=0, max_tokens=20).choices[0].text
    pieces = [chunk.choices[0].text for chunk in
              client.completions.create(model="scripted", prompt="A", temperature=0, max_tokens=20, stream=True)]
    assert whole == "The capital of France is Paris ." and "".join(pieces) == whole and len(pieces) > 3


def test_keeps_the_connection(secure, certificate):
    connection = http.client.HTTPSConnection("localhost", secure.port, context=trusting(certificate), timeout=30)
    for _ in range(20):
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        assert answer.status == 200 and json.loads(answer.read())["object"] == "list"


def test_plain_http_gets_no_answer(secure):
    with socket.create_connection(("127.0.0.1", secure.port), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            assert b"HTTP/1.1" not in plain.recv(1000)
        except ConnectionResetError:
            pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_are_refused(secure, certificate):
    context = trusting(certificate)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", secure.port), timeout=10) as raw:
        context.wrap_socket(raw, server_hostname="localhost")


def test_a_certificate_that_cannot_be_read_is_one_sentence(model):
    with pytest.raises(RuntimeError, match="no certificate in PEM format"):
        Running(model, "--ssl-certfile", "/nowhere/cert.pem")
    with pytest.raises(RuntimeError, match="need --ssl-certfile"):
        Running(model, "--ssl-keyfile", "/nowhere/key.pem")
