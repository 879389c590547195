"""quern pull, list, show and rm against a hub of our own, which redirects, breaks off, lies and refuses."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import make_scripted_model  # noqa: E402
from hub_server import Hub, Proxy, Repository, git_digest  # noqa: E402

QUERN = os.environ["QUERN_BINARY"]
GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
GGUF = (GOLDEN / "llama3_rope_gguf" / "model.gguf").read_bytes()
PIECE = 16384


def pieces_of(content):
    return [f"bytes={begin}-{min(begin + PIECE, len(content)) - 1}" for begin in range(0, len(content), PIECE)]


@pytest.fixture
def hub():
    server = Hub()
    yield server
    server.stop()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripted")
    make_scripted_model.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Machine:
    """The program with a home of its own and this hub."""

    def __init__(self, hub, home, **env):
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self.env = {**kept, "HF_HOME": str(home / "hf"), "HOME": str(home), "QUERN_MODELS": str(home / "models"),
                    "HF_ENDPOINT": hub.url, **env}
        self.cache = home / "hf" / "hub"

    def run(self, *words, **env):
        return subprocess.run([QUERN, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env={**self.env, **env})

    def start(self, *words):
        return subprocess.Popen([QUERN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    def pull(self, *words, **env):
        """The path that a good pull prints."""
        result = self.run("pull", "--json", "--range-size", str(PIECE), *words, **env)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["path"]

    def refusal(self, *words, **env):
        """The one sentence of a pull that must fail."""
        result = self.run("pull", "--range-size", str(PIECE), "--retries", "2", *words, **env)
        assert result.returncode == 1 and result.stdout == "", result
        said = [line for line in result.stderr.splitlines() if line.startswith("quern: ")]
        assert len(said) == 1, result.stderr
        return said[0]

    def json(self, *words):
        result = self.run(*words, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def snapshots(self):
        return sorted(self.cache.glob("models--*/snapshots/*/*"))


@pytest.fixture
def machine(hub, home):
    return Machine(hub, home)


def gguf_repository():
    return Repository({"README.md": b"---\nlicense: mit\n---\n", "tiny-Q4_K_M.gguf": GGUF, "tiny-Q8_0.gguf": GGUF + b"\0" * 8,
                       "mmproj-F16.gguf": b"no model", ".gitattributes": b""})


def test_the_default_of_gguf_files_comes_in_ranges_and_is_laid_out_as_hugging_face_does(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    path = pathlib.Path(machine.pull("org/tiny"))
    assert path.read_bytes() == GGUF and path.name == "tiny-Q4_K_M.gguf"
    digest = hashlib.sha256(GGUF).hexdigest()
    assert os.readlink(path) == f"../../blobs/{digest}"
    repository = machine.cache / "models--org--tiny"
    assert (repository / "refs" / "main").read_text() == hub.repositories["org/tiny"].commit
    assert [entry.name for entry in (repository / "blobs").iterdir()] == [digest]
    ranges = hub.stored_ranges()
    assert sorted(ranges) == sorted(pieces_of(GGUF))  # each once
    assert 1 <= hub.bodies() - len(ranges) <= len(ranges)  # redirected until a redirect's end is known
    before = hub.bodies()
    assert machine.pull("org/tiny") == str(path) and hub.bodies() == before  # nothing comes twice


def test_where_a_file_lies_is_asked_once(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    machine.pull("org/tiny", "--max-workers", "1")
    assert hub.stored_ranges() == pieces_of(GGUF) and hub.bodies() == 1 + len(pieces_of(GGUF))


def test_a_quantization_or_a_file_can_be_named(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    assert machine.pull("org/tiny:q8_0").endswith("tiny-Q8_0.gguf")
    assert machine.pull("hf.co/org/tiny:tiny-Q4_K_M.gguf").endswith("tiny-Q4_K_M.gguf")
    sentence = machine.refusal("org/tiny:Q2_K")
    assert "there are: Q4_K_M, Q8_0" in sentence


def test_safetensors_come_with_what_they_need_and_nothing_else(hub, machine, scripted):
    hub.repositories["org/scripted"] = Repository(
        {**scripted, "pytorch_model.bin": b"pickled", "onnx/model.onnx": b"other", "README.md": b"---\nlicense: mit\n---\n"})
    folder = pathlib.Path(machine.pull("org/scripted"))
    assert {path.name for path in folder.iterdir()} == {*scripted, "README.md"}
    blobs = {path.name for path in (machine.cache / "models--org--scripted" / "blobs").iterdir()}
    assert git_digest(scripted["config.json"]) in blobs  # a small file is named by git's digest
    assert hashlib.sha256(scripted["model.safetensors"]).hexdigest() in blobs
    shown = machine.json("show", "org/scripted")
    assert shown["license"] == "mit" and shown["family"] == "llama" and shown["context_length"] == 512
    assert shown["parameters"] > 0 and "completion" in shown["capabilities"]


def test_all_shards_and_all_parts_come(hub, machine):
    shards = {f"model-0000{i}-of-00002.safetensors": bytes([i]) * 3000 for i in (1, 2)}
    index = {"model.safetensors.index.json": b'{"weight_map": {}}'}
    hub.repositories["org/sharded"] = Repository({"config.json": b"{}", **shards, **index,
                                                  "consolidated-00001-of-00001.safetensors": b"other"})
    folder = pathlib.Path(machine.pull("org/sharded"))
    assert {path.name for path in folder.iterdir()} == {"config.json", *shards, *index}
    parts = {f"Q8_0/big-Q8_0-0000{i}-of-00002.gguf": bytes([i]) * 3000 for i in (1, 2)}
    hub.repositories["org/parts"] = Repository(parts)
    first = pathlib.Path(machine.pull("org/parts:Q8_0"))
    assert first.name == "big-Q8_0-00001-of-00002.gguf" and len(list(first.parent.iterdir())) == 2
    del hub.repositories["org/parts"].files["Q8_0/big-Q8_0-00002-of-00002.gguf"]
    hub.repositories["org/broken"] = hub.repositories["org/parts"]
    assert "has no complete model" in machine.refusal("org/broken")


def test_pickled_weights_are_refused(hub, machine):
    hub.repositories["org/old"] = Repository({"config.json": b"{}", "pytorch_model.bin": b"pickled"})
    assert "can run code" in machine.refusal("org/old")


def test_s35_the_token_goes_to_the_hub_and_not_to_its_storage(hub, machine):
    hub.repositories["org/tiny"], hub.gated = gguf_repository(), {"org/tiny"}
    assert "set HF_TOKEN" in machine.refusal("org/tiny")
    assert "accept its terms" in machine.refusal("org/tiny", HF_TOKEN="of-somebody")
    hub.requests.clear()
    machine.pull("org/tiny", HF_TOKEN=hub.token)
    front = [headers.get("Authorization") for server, _, _, headers in hub.requests if server is hub.front]
    storage = [headers.get("Authorization") for server, _, _, headers in hub.requests if server is hub.storage]
    assert set(front) == {f"Bearer {hub.token}"} and set(storage) == {None}


def test_a_repository_that_moved_is_followed(hub, machine):
    hub.repositories["new/tiny"], hub.moved = gguf_repository(), {"old/tiny": "new/tiny"}
    assert machine.pull("old/tiny").endswith("tiny-Q4_K_M.gguf")


def test_what_broke_off_goes_on_where_it_was(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.cuts = [1000, 0, 5000, 100]
    assert pathlib.Path(machine.pull("org/tiny", "--max-workers", "1")).read_bytes() == GGUF
    ranges = hub.stored_ranges()
    assert ranges[:3] == [f"bytes=0-{PIECE - 1}", f"bytes=1000-{PIECE - 1}", f"bytes=1000-{PIECE - 1}"]


def test_a_pull_that_was_killed_goes_on(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.hold = threading.Event()
    process = machine.start("pull", "org/tiny", "--max-workers", "1", "--range-size", str(4 * PIECE))
    assert hub.half_way.wait(30)
    process.send_signal(2)
    assert process.wait(30) == 130 and "what has come is kept" in process.stderr.read()
    assert machine.snapshots() == [] and machine.json("list") == {"models": []}  # nothing looks finished
    hub.hold.set()
    hub.requests.clear()
    path = pathlib.Path(machine.pull("org/tiny", "--max-workers", "1", "--range-size", str(4 * PIECE)))
    assert path.read_bytes() == GGUF
    first = next(headers["Range"] for server, _, _, headers in hub.requests if server is hub.storage)
    assert first == f"bytes={2 * PIECE}-{4 * PIECE - 1}"


def test_a_server_without_ranges_sends_all_at_once(hub, machine):
    hub.repositories["org/tiny"], hub.ranges = gguf_repository(), False
    assert pathlib.Path(machine.pull("org/tiny")).read_bytes() == GGUF


def test_a_listing_without_sizes_is_completed(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].bare = True
    assert pathlib.Path(machine.pull("org/tiny")).read_bytes() == GGUF


@pytest.mark.parametrize("lie", [-1, 1])
def test_lengths_that_lie_are_found(hub, machine, lie):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].listed["tiny-Q4_K_M.gguf"] = {"size": len(GGUF) + lie}
    assert "lists" in machine.refusal("org/tiny")
    assert machine.snapshots() == []


def test_a_body_that_is_shorter_than_it_says_is_found(hub, machine):
    hub.repositories["org/tiny"], hub.cuts = gguf_repository(), [0] * 100
    assert "what has come is kept" in machine.refusal("org/tiny")


def test_another_total_in_the_answer_is_found(hub, machine):
    hub.repositories["org/tiny"], hub.claimed_total = gguf_repository(), 10 ** 9
    assert "the server has 1000000000 bytes of it" in machine.refusal("org/tiny")


def test_wrong_content_is_thrown_away(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].listed["tiny-Q4_K_M.gguf"] = {"sha256": "0" * 64}
    assert "it was thrown away" in machine.refusal("org/tiny")
    assert machine.snapshots() == [] and list(machine.cache.glob("*/blobs/*")) == []


@pytest.mark.parametrize("name", ["../../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a\\..\\evil.gguf", "a//b",
                                  "a\nb.gguf", "", "." * 2])
def test_s8_names_that_lead_elsewhere_are_refused(hub, machine, name):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].extra_names = [name]
    assert "nothing is pulled from there" in machine.refusal("org/tiny")
    assert not machine.snapshots() and not list(machine.home.rglob("evil*"))


def test_digests_and_commits_that_are_none_are_refused(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].listed["tiny-Q4_K_M.gguf"] = {"sha256": "../../../evil"}
    assert "is not what a hub sends" in machine.refusal("org/tiny")
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].commit = "../../evil"
    assert "is not what a hub sends" in machine.refusal("org/tiny")


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "../x/y", "org/na me", "org/tiny:../x", "-x/y", "org/.x", "a--b/c"])
def test_names_that_are_none_are_refused(machine, name):
    result = machine.run("pull", "--", name) if name.startswith("-") else machine.run("pull", name)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1


def test_links_in_the_cache_are_not_written_through(hub, machine, tmp_path):
    hub.repositories["org/tiny"] = gguf_repository()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    machine.cache.mkdir(parents=True)
    (machine.cache / "models--org--tiny").symlink_to(elsewhere)
    assert "is a link" in machine.refusal("org/tiny")
    assert list(elsewhere.rglob("*.part")) == []


def test_a_snapshot_that_leads_out_of_the_cache_is_not_used(hub, machine, tmp_path):
    (tmp_path / "secret.gguf").write_bytes(GGUF)
    snapshot = machine.cache / "models--org--tiny" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "x-Q4_0.gguf").symlink_to(tmp_path / "secret.gguf")
    assert machine.json("list") == {"models": []}


def test_servers_in_trouble_are_asked_again_and_then_named(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.trouble = [(503, {}), (429, {"Retry-After": 0})]
    machine.pull("org/tiny")
    for status, words in ((500, "is in trouble (status 500)"), (429, "too many requests"), (404, "has no org/other"),
                          (403, "set HF_TOKEN"), (401, "set HF_TOKEN"), (418, "answers 418")):
        hub.trouble = [(status, {})] * 3
        assert words in machine.refusal("org/other"), status
        hub.trouble = []


def test_a_revision_that_is_not_there_is_named(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    assert "no such revision" in machine.refusal("org/tiny", "--revision", "v9")
    commit = hub.repositories["org/tiny"].commit
    assert commit in machine.pull("org/tiny", "--revision", commit)


def test_offline_and_out_of_reach_are_one_clear_sentence(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    sentence = machine.refusal("org/tiny", HF_HUB_OFFLINE="1")
    assert sentence == "quern: org/tiny is not in the cache, and HF_HUB_OFFLINE is set: unset it to pull"
    assert hub.requests == []
    assert "cannot be reached" in machine.refusal("org/tiny", HF_ENDPOINT="http://127.0.0.1:1")


def test_no_room_is_said_before_anything_comes(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].listed["tiny-Q4_K_M.gguf"] = {"size": 10 ** 16}
    sentence = machine.refusal("org/tiny", "--range-size", "1000g")
    assert "GB free: make room, or set HF_HOME" in sentence or "File too large" in sentence
    assert hub.bodies() == 0


def test_two_pulls_at_once_bring_a_file_once(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.hold = threading.Event()
    first = machine.start("pull", "org/tiny", "--json")
    assert hub.half_way.wait(30)
    second = machine.start("pull", "org/tiny", "--json")
    assert "another process is bringing tiny-Q4_K_M.gguf" in second.stderr.readline()
    hub.hold.set()
    paths = [json.loads(process.communicate(timeout=60)[0])["path"] for process in (first, second)]
    assert paths[0] == paths[1] and pathlib.Path(paths[0]).read_bytes() == GGUF
    assert sum(1 for server, *_ in hub.requests if server is hub.storage) == 1


def test_list_show_and_rm(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    machine.pull("org/tiny")
    machine.pull("org/tiny:Q8_0")
    listed = machine.json("ls")["models"]
    assert [model["name"] for model in listed] == ["org/tiny:Q4_K_M", "org/tiny:Q8_0"]
    assert listed[0]["digest"] == "sha256:" + hashlib.sha256(GGUF).hexdigest() and listed[0]["bytes"] == len(GGUF)
    text = machine.run("list").stdout
    assert "org/tiny:Q4_K_M" in text and "just now" in text
    shown = machine.run("show", "org/tiny").stdout
    for word in ("architecture", "llama", "chat template", "license", "Q4_K_M, gguf"):
        assert word in shown, shown
    assert "did you mean org/tiny:Q4_K_M?" in machine.run("show", "org/tiny:Q4_K_S").stderr
    assert machine.json("rm", "org/tiny:Q4_K_M")["name"] == "org/tiny:Q4_K_M"
    assert [model["name"] for model in machine.json("list")["models"]] == ["org/tiny:Q8_0"]
    assert len(list(machine.cache.glob("*/blobs/*"))) == 1
    assert machine.run("rm", "org/tiny").returncode == 0
    assert not (machine.cache / "models--org--tiny").exists()
    assert machine.run("rm", "org/tiny").returncode == 1


def test_a_model_is_pulled_when_it_is_asked_for_and_then_found_offline(hub, machine, scripted):
    hub.repositories["org/scripted"] = Repository(scripted)
    tokenized = machine.run("tokenize", "org/scripted", "hello")
    assert tokenized.returncode == 0, tokenized.stderr
    assert "pulling it from" in tokenized.stderr
    again = machine.run("tokenize", "org/scripted", "hello", HF_HUB_OFFLINE="1")
    assert again.stdout == tokenized.stdout and again.stderr == ""
    missing = machine.run("tokenize", "org/missing", "hello", HF_HUB_OFFLINE="1")
    assert missing.stderr.startswith("quern: org/missing is not in the cache, and HF_HUB_OFFLINE is set")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run([shutil.which("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:hub.test", "-keyout", paths[1], "-out", paths[0]],
                   check=True, capture_output=True)
    return paths


def test_an_encrypted_hub_is_trusted_by_its_certificate_only(home, certificate):
    hub = Hub(certificate)
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].large_bytes = 10 ** 9  # nothing is in the storage, which is not encrypted
    machine = Machine(hub, home)
    assert "certificate that is not trusted" in machine.refusal("org/tiny")
    assert hub.requests == []
    path = machine.pull("org/tiny", "--token", "mine", SSL_CERT_FILE=certificate[0])
    assert pathlib.Path(path).read_bytes() == GGUF
    assert machine.refusal("org/tiny:Q8_0", SSL_CERT_FILE="/nowhere/a.pem").endswith("but $SSL_CERT_FILE names it")
    hub.repositories["org/tiny"].large_bytes = 1000
    assert "which is not encrypted" in machine.refusal("org/tiny:Q8_0", SSL_CERT_FILE=certificate[0])
    hub.stop()


def test_a_hub_is_reached_through_a_proxy(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].large_bytes = 10 ** 9
    proxy = Proxy(hub.front.server_address[1])
    there = {"HF_ENDPOINT": "http://hub.test", "NO_PROXY": "", "no_proxy": ""}
    path = machine.pull("org/tiny", HTTP_PROXY=proxy.url, **there)
    assert pathlib.Path(path).read_bytes() == GGUF
    assert all(url.startswith("http://hub.test:80/") for _, url in proxy.asked) and len(proxy.asked) >= 2
    asked = len(proxy.asked)
    assert "cannot resolve hub.test" in machine.refusal("org/tiny:Q8_0", HTTP_PROXY=proxy.url, **{**there, "NO_PROXY": "other,.test"})
    assert len(proxy.asked) == asked
    assert "$http_proxy must name a proxy as http://HOST:PORT" in machine.refusal("org/tiny:Q8_0", http_proxy="socks5://me:secret@x:1", **there)
    proxy.stop()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_proxy_may_want_a_password_that_nobody_else_sees(home, certificate, encrypted):
    hub = Hub(certificate if encrypted else None)
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].large_bytes = 10 ** 9
    proxy = Proxy(hub.front.server_address[1], "Basic bWU6cEBzcy93b3Jk")
    machine = Machine(hub, home, HF_ENDPOINT=f"http{'s' if encrypted else ''}://hub.test", NO_PROXY="", no_proxy="",
                      SSL_CERT_FILE=certificate[0])
    host = proxy.url.removeprefix("http://")

    def by(user):
        return {"all_proxy": f"http://{user}{host}"}
    assert "asks for a user and a password" in machine.refusal("org/tiny", **by(""))
    result = machine.run("pull", "--retries", "2", "org/tiny", **by("me:secret@"))
    assert result.returncode == 1 and "does not take this user and password" in result.stderr
    assert "secret" not in result.stdout + result.stderr and proxy.asked == []
    result = machine.run("pull", "--json", "org/tiny", **by("me:p%40ss%2Fword@"))
    assert result.returncode == 0, result.stderr
    assert pathlib.Path(json.loads(result.stdout)["path"]).read_bytes() == GGUF and proxy.asked
    assert not re.search("p@ss|p%40|bWU6", result.stdout + result.stderr)
    assert all("Proxy-Authorization" not in headers for _, _, _, headers in hub.requests)
    proxy.stop()
    hub.stop()


def test_an_encrypted_hub_is_reached_through_a_proxy(home, certificate):
    hub = Hub(certificate)
    hub.repositories["org/tiny"] = gguf_repository()
    hub.repositories["org/tiny"].large_bytes = 10 ** 9
    proxy = Proxy(hub.front.server_address[1])
    machine = Machine(hub, home, HTTPS_PROXY=proxy.url, NO_PROXY="", no_proxy="", SSL_CERT_FILE=certificate[0])
    path = machine.pull("org/tiny", "--token", "mine", HF_ENDPOINT="https://hub.test")
    assert pathlib.Path(path).read_bytes() == GGUF
    assert set(proxy.asked) == {("CONNECT", "hub.test:443")}
    said = machine.refusal("org/tiny:Q8_0", HF_ENDPOINT="https://elsewhere.test")
    assert "answers 403 and does not connect to elsewhere.test:443" in said
    proxy.stop()
    hub.stop()


def test_serving_while_pulling_ends_at_the_first_signal(hub, machine):
    hub.repositories["org/tiny"] = gguf_repository()
    hub.hold = threading.Event()
    for sign, status in ((signal.SIGINT, 128 + signal.SIGINT), (signal.SIGTERM, 0)):
        process = machine.start("serve", "org/tiny", "--port", "0")
        assert hub.half_way.wait(30)
        hub.half_way.clear()
        process.send_signal(sign)
        errors = process.communicate(timeout=30)[1]
        assert process.returncode == status and "stopped before anything was served" in errors
    hub.hold.set()


def test_models_are_kept_where_download_dir_says(hub, machine, scripted, tmp_path):
    hub.repositories["org/said"] = Repository(dict(scripted))
    folder = tmp_path / "elsewhere"
    for _ in range(2):  # pulled, then found
        result = machine.run("run", "org/said", "hi", "--download-dir", str(folder), "--max-model-len", "256")
        assert result.returncode == 0 and "Hello from the script" in result.stdout, result.stderr
    assert result.stderr.count("pulling") == 0
    assert list(folder.glob("models--org--said/snapshots/*/config.json")) and not machine.snapshots()
