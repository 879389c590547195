"""A hub on this machine that speaks the API of Hugging Face's, and can be told to behave badly.

Files live in `Hub.repositories`; large ones are served by a second server on another port, as a hub's storage is, to
which the first one redirects and which must never see the token."""
import hashlib
import http.client
import http.server
import json
import re
import select
import socket
import threading
import urllib.parse


def git_digest(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repository:
    def __init__(self, files, large_bytes=1000, commit="0123456789abcdef0123456789abcdef01234567"):
        self.files, self.large_bytes, self.commit = files, large_bytes, commit
        self.listed = {}  # what the listing says of a file instead of the truth: {path: {"size": 1}}
        self.extra_names = []  # that the listing has too
        self.bare = False  # the listing has neither sizes nor digests

    def digest(self, path):
        content = self.files[path]
        return hashlib.sha256(content).hexdigest() if self.is_large(path) else git_digest(content)

    def is_large(self, path):
        return len(self.files[path]) > self.large_bytes

    def listing(self, name):
        siblings = [{"rfilename": extra} for extra in self.extra_names]
        for path, content in self.files.items():
            entry = {"rfilename": path}
            if not self.bare:
                entry.update({"size": len(content), "blobId": git_digest(content)})
                if self.is_large(path):
                    entry["lfs"] = {"sha256": self.digest(path), "size": len(content), "pointerSize": 130}
            for key, value in self.listed.get(path, {}).items():
                (entry["lfs"] if key == "sha256" else entry)[key] = value
                if key == "size" and "lfs" in entry:
                    entry["lfs"]["size"] = value
            siblings.append(entry)
        return {"id": name, "modelId": name, "sha": self.commit, "private": False, "gated": False, "tags": [],
                "downloads": 0, "likes": 0, "siblings": siblings}


class Proxy:
    """Passes requests for hub.test on to a hub of this machine, whole URLs and tunnels; remembers what it was asked."""

    def __init__(self, port, authorization=None):
        self.asked, self.authorization = [], authorization
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (ProxyHandler,), {"proxy": self, "to": port}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_HEAD(self):
        self.pass_on()

    def do_GET(self):
        self.pass_on()

    def may_not(self):
        """Whether this client was sent away."""
        given = self.headers["Proxy-Authorization"]
        del self.headers["Proxy-Authorization"]
        if given != self.proxy.authorization:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        return given != self.proxy.authorization

    def pass_on(self):
        if self.may_not():
            return
        self.proxy.asked.append((self.command, self.path))
        url = urllib.parse.urlsplit(self.path)
        assert url.hostname == "hub.test"
        hub = http.client.HTTPConnection("127.0.0.1", self.to)
        hub.request(self.command, url.path + ("?" + url.query if url.query else ""), headers=dict(self.headers))
        answer = hub.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("server", "date", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        hub.close()

    def do_CONNECT(self):
        if self.may_not():
            return
        self.proxy.asked.append((self.command, self.path))
        if self.path != "hub.test:443":
            return self.send_error(403)
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.to)) as hub:
            ends = {hub: self.connection, self.connection: hub}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    piece = end.recv(1 << 16)
                    if not piece:
                        self.close_connection = True
                        return
                    ends[end].sendall(piece)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        hub, path = self.server.hub, urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        hub.note(self)
        if hub.trouble:
            status, headers = hub.trouble.pop(0)
            return self.reply(status, b"trouble", **headers)
        if self.server is hub.storage:
            _, organization, name, file = path.split("/", 3)
            return self.send_file(hub.repositories[f"{organization}/{name}"].files[file])
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            return self.send_listing(found[1], found[2] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(*found.groups())
        return self.reply(404, x_error_code="EntryNotFound")

    def find(self, name):
        """The repository if this client may see it; else it has its answer."""
        hub, given = self.server.hub, self.headers.get("Authorization")
        if name in hub.moved:
            self.reply(307, Location=self.path.replace(name, hub.moved[name]))
        elif name in hub.gated and given != f"Bearer {hub.token}":
            self.reply(403 if given else 401, x_error_code="GatedRepo", x_error_message="Access is restricted.")
        elif name not in hub.repositories:
            self.reply(404 if given else 401, x_error_code="RepoNotFound", x_error_message="Repository not found")
        else:
            return hub.repositories[name]
        return None

    def send_listing(self, name, revision):
        if repository := self.find(name):
            if revision not in ("main", repository.commit):
                return self.reply(404, x_error_code="RevisionNotFound")
            body = json.dumps(repository.listing(name)).encode()
            self.reply(200, body, Content_Type="application/json")

    def resolve(self, name, revision, file):
        if not (repository := self.find(name)):
            return
        if revision not in ("main", repository.commit):
            return self.reply(404, x_error_code="RevisionNotFound")
        if file not in repository.files:
            return self.reply(404, x_error_code="EntryNotFound")
        known = {"X_Repo_Commit": repository.commit}
        if repository.is_large(file):
            target = f"{self.server.hub.storage_url}/{name}/{urllib.parse.quote(file)}?signature=abc"
            return self.reply(302, Location=target, X_Linked_Etag=f'"{repository.digest(file)}"',
                              X_Linked_Size=len(repository.files[file]), **known)
        return self.send_file(repository.files[file], Etag=f'"{repository.digest(file)}"', **known)

    def send_file(self, content, **headers):
        hub, total, begin, end = self.server.hub, len(content), 0, len(content)
        if (found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))) and hub.ranges:
            begin, end = int(found[1]), min(total, int(found[2]) + 1)
            headers["Content_Range"] = f"bytes {begin}-{end - 1}/{hub.claimed_total or total}"
            self.send_response(206)
        else:
            self.send_response(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(end - begin + hub.lie_bytes))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = content[begin:end]
        cut = hub.cut_after()
        if cut is not None and cut < len(body):
            self.wfile.write(body[:cut])
            self.wfile.flush()
            self.close_connection = True
            return
        hub.pause(self, body)


class Hub:
    def __init__(self, certificate=None):
        self.repositories, self.moved, self.gated, self.token = {}, {}, set(), "secret-token"
        self.requests = []  # (server, method, path, headers)
        self.trouble = []  # answers to the next requests: (status, headers)
        self.ranges, self.claimed_total, self.lie_bytes = True, None, 0
        self.cuts = []  # after how many bytes the next bodies break off; None: not
        self.hold = None  # an event: bodies stop half way until it is set
        self.half_way = threading.Event()
        self.lock = threading.Lock()
        self.front, self.storage = self.serve(certificate), self.serve(None)
        self.url = f"{'https' if certificate else 'http'}://localhost:{self.front.server_address[1]}"
        self.storage_url = f"http://127.0.0.1:{self.storage.server_address[1]}"

    def serve(self, certificate):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.hub, server.daemon_threads = self, True
        if certificate:
            import ssl
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def note(self, handler):
        with self.lock:
            headers = {name.title(): value for name, value in handler.headers.items()}
            self.requests.append((handler.server, handler.command, handler.path, headers))

    def cut_after(self):
        with self.lock:
            return self.cuts.pop(0) if self.cuts else None

    def pause(self, handler, body):
        if self.hold is None:
            handler.wfile.write(body)
            return
        half = len(body) // 2
        handler.wfile.write(body[:half])
        handler.wfile.flush()
        self.half_way.set()
        self.hold.wait(60)
        handler.wfile.write(body[half:])

    def bodies(self):
        """How many requests for a file's content came."""
        return sum(1 for _, method, path, _ in self.requests if method == "GET" and "/api/" not in path)

    def stored_ranges(self):
        """The ranges that were asked of the storage, in the order they came."""
        return [headers["Range"] for server, _, _, headers in self.requests if server is self.storage]

    def stop(self):
        for server in (self.front, self.storage):
            server.shutdown()
            server.server_close()
