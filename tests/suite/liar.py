"""A first process of a sandbox that breaks the protocol of the link, each call in
the way that /liar/way says; started in the resident's stead."""
import array, os, signal, socket, struct, time

REQUEST, STDOUT, STDERR, EXIT, WINDOW, READY = 0, 4, 5, 6, 7, 8
FOUND = b'{"exitCode":0,"timedOut":false,"cancelled":false}'


def frame(kind, payload=b""):
    return bytes([kind]) + struct.pack(">I", len(payload)) + payload


def with_descriptors(call, said, count):
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", held))
    call.sendmsg([said], [rights])
    for it in held:
        os.close(it)


def flood(call, piece, times):
    for _ in range(times):
        call.sendall(piece)


def request(call):
    call.sendall(frame(READY))
    return call.recv(1 << 16)


def serve(call, way):
    """One call, in the supervisor that the other side takes this process for."""
    if way == "closes":
        return
    if way == "reports first":
        return call.sendall(frame(EXIT, FOUND))
    if way == "greets with descriptors":
        with_descriptors(call, frame(READY), 200)
    elif way == "greets twice":
        call.sendall(frame(READY) * 2)
    elif way == "greets with more":
        call.sendall(frame(READY, b"x" * 70))
    else:
        request(call)
    if way == "huge":
        flood(call, bytes([STDOUT]) + b"\xff" * 4 + b"x" * 65536, 200)
    elif way == "of no kind":
        flood(call, frame(99, b"x"), 1000)
    elif way == "half":
        call.sendall(bytes([STDOUT, 0, 0, 0, 9, 120]))
    elif way == "replays":
        call.sendall(request(call) + frame(REQUEST, b"{}"))
    elif way == "floods output":
        flood(call, frame(STDOUT, b"x" * 65536) + frame(STDERR, b"y" * 65536), 600)
    elif way == "floods windows":
        flood(call, frame(WINDOW, b"\xff" * 4) * 1000, 100)
    elif way == "floods empty frames":
        flood(call, frame(STDOUT) * 1000, 100)
    elif way == "deep":
        call.sendall(frame(EXIT, b"[" * 60000))
    elif way == "deep in":
        call.sendall(frame(EXIT, b'{"exitCode":' + b'{"a":' * 9000 + b"1" + b"}" * 9000 + b"}"))
    elif way == "odd code":
        call.sendall(frame(EXIT, b'{"exitCode":1e300}'))
    elif way == "long words":
        call.sendall(frame(EXIT, b'{"exitCode":1,"note":"' + b"\\u001b[2J\\n" * 6000 + b'"}'))
    elif way == "descriptors":
        for _ in range(200):
            with_descriptors(call, frame(STDOUT, b"x"), 100)
    elif way == "odd place":
        call.sendall(frame(EXIT, b'{"exitCode":0,"saved":"/etc/\\u0000passwd","left":-1}'))
    if way != "half":
        call.sendall(frame(EXIT, FOUND) * 2)


def file_operation(call, way):
    """The same in this very process, as a resident does."""
    try:
        if way != "reports first":
            request(call)
        if way == "floods output":
            flood(call, frame(STDOUT, b"x" * 65536), 2000)
        call.sendall(frame(EXIT, b"[" * 60000 if way == "deep" else b'{"kind":7,"bytes":-1}'))
    except OSError:
        pass
    call.close()


def taken(link, packet, held):
    call = socket.socket(fileno=held[0])
    way = open("/liar/way").read()
    if packet == b"F":
        return file_operation(call, way)
    if os.fork() == 0:
        try:
            serve(call, way)
        except OSError:
            pass
        os._exit(0)
    call.close()
    if way == "speaks on the link":
        with_descriptors(link, b"beige-link/1", 100)
        for _ in range(50):
            link.send(b"x" * 60000)


def dial():
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.connect("/beige/link.sock")
        link.send(b"beige-link/1")
        while True:
            packet, held, _, _ = socket.recv_fds(link, 64, 1)
            if not held:
                return
            taken(link, packet, held)
    except OSError:
        pass
    finally:
        link.close()


open("/proc/self/comm", "w").write("tool-client")
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.alarm(300)
os.write(1, frame(READY))
while True:
    dial()
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    time.sleep(0.002)
