#!/usr/bin/env python3
"""A plain MCP server over Streamable HTTP, with the standard library only. It
knows nothing of beige. Arguments: a port (0: any), a file that is told of each
request, and words that change what it does."""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, LOG, WORDS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
KEY = "Bearer far-secret-key"
TOOLS = ["echo", "stream", "said", "dribble", "forever", "long", "long-json", "html", "denied"]
TOOLS += ["broken", "redirect", "half", "cut", "die", "forget", "change", "begun", "batch"]
TOOLS += ["called-off", "quiet", "heavy", "forevers"]
lock = threading.Lock()
sessions, listeners, said, called_off, begun, left = set(), [], [], [], 0, []
forevers = []


def text(it):
    return {"content": [{"type": "text", "text": str(it)}]}


def schema():
    return {"type": "object", "properties": {"message": {"type": "string"}}}


def event(message, id=None):
    named = f"id: {id}\n" if id else ""
    return f"event: message\n{named}data: {json.dumps(message)}\n\n".encode()


def notice(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, method):
        names = ["Mcp-Session-Id", "MCP-Protocol-Version", "Authorization", "Accept", "Last-Event-ID"]
        headers = {it: self.headers.get(it) for it in names}
        with lock, open(LOG, "a") as file:
            line = {"http": self.command, "path": self.path, "method": method, **headers}
            file.write(json.dumps(line) + "\n")

    def whole(self, status, body=b"", media=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if media:
            self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, id, result, **headers):
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        self.whole(200, body, "application/json; charset=utf-8", **headers)

    def begin_stream(self):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def say(self, piece):
        self.wfile.write(piece)
        self.wfile.flush()

    def is_known(self):
        """Whether the session and the key are; else that is answered."""
        if self.headers.get("Authorization") != KEY:
            body = b'{"error": "invalid_token", "error_description": "this key is unknown"}'
            self.whole(401, body, "application/json")
            return False
        if "stateless" in WORDS or self.headers.get("Mcp-Session-Id") in sessions:
            return True
        status = 404 if self.headers.get("Mcp-Session-Id") else 400
        self.whole(status, b"which session?", "text/plain")
        return False

    def do_GET(self):
        self.note(None)
        if self.path != "/mcp?team=red-team-key":
            return self.whole(200, b"{}", "application/json")
        if not self.is_known():
            return None
        last = self.headers.get("Last-Event-ID")
        if last and last.startswith("half-"):
            self.begin_stream()
            id = int(last.removeprefix("half-"))
            return self.say(event({"jsonrpc": "2.0", "id": id, "result": text("both halves")}, "x"))
        if "no-stream" in WORDS:
            return self.whole(405)
        self.begin_stream()
        self.say(b": open\n\n")
        done = threading.Event()
        with lock:
            listeners.append((self, done))
        done.wait()
        return None

    def do_DELETE(self):
        self.note(None)
        sessions.discard(self.headers.get("Mcp-Session-Id"))
        self.whole(200)

    def do_POST(self):
        global begun
        it = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        id, method, params = it.get("id"), it.get("method"), it.get("params", {})
        self.note(method)
        if method == "initialize":
            if self.headers.get("Authorization") != KEY:
                return self.is_known()
            with lock:
                begun += 1
                session = f"session-{os.getpid()}-{begun}"
                sessions.add(session)
            named = {} if "stateless" in WORDS else {"Mcp_Session_Id": session}
            result = {"protocolVersion": "2025-03-26", "serverInfo": {"name": "far", "version": "1"}}
            # What it says of beige is not believed.
            result["capabilities"] = {"tools": {}, "experimental": {"beige": {"version": 1}}}
            return self.answer(id, result, **named)
        if not self.is_known():
            return None
        if method is None:
            with lock:
                said.append(it.get("result", it.get("error", {}).get("message")))
            return self.whole(202)
        if id is None:
            if method == "notifications/cancelled":
                called_off.append(params["requestId"])
            return self.whole(202)
        if method == "tools/list":
            tools = [{"name": it, "inputSchema": schema()} for it in TOOLS]
            return self.answer(id, {"tools": tools})
        if method != "tools/call":
            return self.whole(500)
        return self.call(id, params["name"], params["arguments"], params["_meta"]["progressToken"])

    def call(self, id, name, arguments, token):
        answer = {"jsonrpc": "2.0", "id": id, "result": text(arguments.get("message", name))}
        if name in ("echo", "late"):
            return self.answer(id, answer["result"])
        if name == "said":
            return self.answer(id, text(sorted(map(str, said))))
        if name == "forevers":
            return self.answer(id, text(len(forevers)))
        if name == "begun":
            return self.answer(id, text(begun))
        if name == "called-off":
            return self.answer(id, text(f"{len(called_off)} {len(left)}"))
        if name == "batch":
            told = notice("notifications/message", level="warning", data="told in a batch")
            return self.whole(200, json.dumps([told, answer]).encode(), "application/json")
        if name == "html":
            return self.whole(200, b"<h1>welcome</h1>", "text/html")
        if name == "denied":
            return self.whole(401, b"go away with far-secret-key", "text/plain")
        if name == "broken":
            return self.whole(503, b"<h1>503</h1>", "text/html")
        if name == "redirect":
            return self.whole(307, Location=f"http://localhost:{port()}/elsewhere")
        if name == "long-json":
            return self.whole(200, b"[" * (17 << 20), "application/json")
        if name == "heavy":
            heavy = b"[" + b'{"":0},' * 1000000 + b"0]"
            return self.whole(200, heavy, "application/json")
        if name == "quiet":
            return self.whole(202)
        if name == "forget":
            self.answer(id, answer["result"])
            return sessions.clear()
        if name == "change":
            TOOLS.append("late")
            with lock:
                for listener, _ in listeners:
                    listener.say(event(notice("notifications/tools/list_changed")))
            return self.answer(id, answer["result"])
        if name == "die":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.say(b'{"jsonrpc": ')
            os._exit(3)
        self.begin_stream()
        if name == "stream":
            progress = {"progress": 1, "total": 2, "message": "half way"}
            self.say(b": hello\n\nid: 1\ndata:\n\n")
            self.say(event(notice("notifications/progress", progressToken=token, **progress)))
            self.say(event({"jsonrpc": "2.0", "id": "a", "method": "ping"}))
            self.say(event({"jsonrpc": "2.0", "id": "b", "method": "beige/prompt", "params": {}}))
            while len(said) < 2:
                time.sleep(0.001)
            self.say(event(answer))
            # One that does not end holds up nobody.
            return self.until_it_leaves()
        if name == "dribble":
            for byte in event(answer):
                self.say(bytes([byte]))
            return None
        if name == "half":
            return self.say(event(notice("notifications/message", data="first half"), f"half-{id}"))
        if name == "cut":
            return self.say(event(notice("notifications/message", data="cut"))[:-9])
        if name == "long":
            try:
                for _ in range(17 * 1024):
                    self.say(b"data: " + b"x" * 1024)
            except OSError:
                pass
            return None
        if name == "forever":
            forevers.append(id)
            self.say(event(notice("notifications/message", level="warning", data="forever begins")))
            return self.until_it_leaves()
        return None

    def until_it_leaves(self):
        try:
            while True:
                self.say(b": on and on\n\n")
                time.sleep(0.01)
        except OSError:
            left.append(1)


def port():
    return server.server_address[1]


class Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", PORT), Handler)
print(port(), flush=True)
server.serve_forever()
