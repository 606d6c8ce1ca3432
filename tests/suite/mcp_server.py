#!/usr/bin/env python3
"""A plain MCP server on its standard streams, with the standard library only.
It knows nothing of beige."""

import json
import os
import sys

DATA = "iVBORw0KGgo="
STRING = {"type": "string"}
TOOLS = {
    "echo": ("Says it again\nMore of it", {"message": STRING, "times": {"type": "integer"}}, ["message"]),
    "sum": ("Adds numbers", {"n": {"type": "array", "items": {"type": "number"}}}, ["n"]),
    "show": ("Gives what is no text", {}, []),
    "broken": ("Gives an image that is none", {}, []),
    "fail": ("Fails", {}, []),
    "refuse": ("Is refused", {}, []),
    "slow": ("Waits for `release`", {}, []),
    "release": ("Lets `slow` go on", {}, []),
    "change": ("Gives the tool `late`", {}, []),
    "lists": ("Counts the lists that were asked for", {}, []),
    "called-off": ("Lists what was called off", {}, []),
    "never": ("Is not answered", {}, []),
    "nevers": ("Counts the calls of `never`", {}, []),
    "odd": ("Answers what is no answer", {}, []),
    "task": ("Works only as a task", {"hang": {"type": "boolean"}}, []),
    "die": ("Ends the server", {}, []),
    "pid": ("Names the process", {}, []),
}
waiting, called_off, nevers, lists = [], [], [], 0


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def notice(method, **params):
    say({"method": method, "params": params})


def schema(properties, required):
    closed = {"additionalProperties": False}
    return {"type": "object", "properties": properties, "required": required, **closed}


def page(cursor):
    global lists
    lists += cursor == 0
    names = list(TOOLS)[cursor : cursor + 4]
    tools = [
        {"name": it, "description": TOOLS[it][0], "inputSchema": schema(*TOOLS[it][1:])}
        for it in names
    ]
    for it in tools:
        if it["name"] == "task":
            it["execution"] = {"taskSupport": "required"}
    more = {"nextCursor": str(cursor + 4)} if cursor + 4 < len(TOOLS) else {}
    return {"tools": tools, **more}


def text(it):
    return {"content": [{"type": "text", "text": str(it)}]}


def shown():
    blob = {"uri": "test://blob", "mimeType": "application/x-odd", "blob": "AAEC"}
    return {
        "content": [
            {"type": "text", "text": "before"},
            {"type": "image", "mimeType": "image/png", "data": DATA},
            {"type": "resource", "resource": blob},
            {"type": "resource", "resource": {"uri": "test://text", "text": "words"}},
            {"type": "resource_link", "uri": "test://link", "name": "link"},
        ]
    }


def call(id, name, arguments, token):
    """The result, or `None` where there is none yet."""
    if name == "echo":
        return text(" ".join([arguments["message"]] * arguments.get("times", 1)))
    if name == "sum":
        return {"structuredContent": {"sum": sum(arguments["n"])}}
    if name == "show":
        return shown()
    if name == "broken":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "%"}]}
    if name == "fail":
        return {**text("it did not work"), "isError": True}
    if name == "slow":
        progress = {"progress": 1, "total": 2, "message": "half way"}
        notice("notifications/progress", progressToken=token, **progress)
        notice("notifications/message", level="warning", data="slow has begun")
        waiting.append(id)
        return None
    if name == "release":
        for it in waiting:
            say({"id": it, "result": text("released")})
        return text(len(waiting))
    if name == "change":
        TOOLS["late"] = ("Came late", {}, [])
        notice("notifications/tools/list_changed")
        return text("changed")
    if name == "late":
        return text("here")
    if name == "lists":
        return text(lists)
    if name == "called-off":
        return text(len(called_off))
    if name == "never":
        nevers.append(id)
        return None
    if name == "nevers":
        return text(len(nevers))
    if name == "odd":
        return {"odd": True}
    if name == "die":
        os._exit(3)
    if name == "pid":
        return text(os.getpid())
    return None


for line in sys.stdin:
    it = json.loads(line)
    id, method, params = it.get("id"), it["method"], it.get("params", {})
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        server = {"name": "test", "version": "1"}
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}
    elif method == "tools/list":
        result = page(int(params.get("cursor", 0)))
    elif method == "tools/call" and params["name"] == "refuse":
        say({"id": id, "error": {"code": -32602, "message": "not this one"}})
        continue
    elif method == "tools/call" and params["name"] == "task":
        task = "hang" if params["arguments"].get("hang") else "quick"
        result = {"task": {"taskId": task, "status": "working"}} if "task" in params else {}
    elif method == "tasks/result":
        result = text("done") if params["taskId"] == "quick" else None
    elif method == "tasks/cancel":
        called_off.append(params["taskId"])
        result = {}
    elif method == "tools/call":
        token = params["_meta"]["progressToken"]
        result = call(id, params["name"], params["arguments"], token)
    elif method == "notifications/cancelled":
        called_off.append(params["requestId"])
        result = None
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": f"no method {method}"}})
        continue
    else:
        result = None
    if result is not None:
        say({"id": id, "result": result})
