"""A git server for tests: the smart HTTP of `git http-backend` on loopback.

Arguments: the folder of the repositories, and a password that is wanted if it
is not empty. Says its port; notes every request in ROOT/requests.log.
"""
import base64, http.server, os, subprocess, sys

root, password = sys.argv[1], sys.argv[2]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def serve(self):
        given = self.headers.get("Authorization", "")
        with open(root + "/requests.log", "a") as log:
            log.write(f"{self.command} {self.path} {'with' if given else 'without'}\n")
        if self.path.startswith("/hang/"):
            # Answers nothing; ends when the other side does.
            self.rfile.read(1)
            with open(root + "/requests.log", "a") as log:
                log.write("hung up\n")
            return
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/away/", "/"))
            self.end_headers()
            return
        want = "Basic " + base64.b64encode(f"x-access-token:{password}".encode()).decode()
        if password and given != want:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        length = self.headers.get("Content-Length")
        if length is None and self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while (size := int(self.rfile.readline(), 16)) > 0:
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body = self.rfile.read(int(length or 0))
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "REMOTE_USER": "agent", "REMOTE_ADDR": "127.0.0.1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true", "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment,
                              stdout=subprocess.PIPE)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    do_GET = do_POST = serve


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
