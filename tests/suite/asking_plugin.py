#!/usr/bin/env python3
"""A plugin that asks: each call of its tool `p` is a request to the gateway.

    p ask METHOD PARAMS      asks, and prints {"result": …} or {"error": …}, and
                             "events" where it was told any
    p begin METHOD PARAMS    the same without waiting; the answer is lost
    p cancel METHOD PARAMS   asks, takes its word back once it was told an event
    p die METHOD PARAMS      asks, and ends once it was told an event
    p odd METHOD PARAMS      asks with odd values in place of each parameter, and
                             prints how many were answered by a result, by an error
"""

import json
import os
import queue
import sys
import threading

lock = threading.Lock()
waiting = {}
last_id = 0


def say(message):
    with lock:
        print(json.dumps(message), flush=True)


def answer(id, result):
    say({"jsonrpc": "2.0", "id": id, "result": result})


def begin(method, params):
    """Asks; gives the id, and where answer and events come in."""
    global last_id
    with lock:
        last_id += 1
        id = f"ask-{last_id}"
        inbox = waiting[id] = queue.Queue()
    say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    return id, inbox


def ask(method, params, until_event=False):
    id, inbox = begin(method, params)
    told = {}
    while True:
        kind, value = inbox.get()
        if kind == "event":
            told.setdefault("events", []).append(value)
            if until_event:
                return id, told
        else:
            told[kind] = value
            return id, told


ODD = [None, True, 7, -1, 1e300, 2**70, "", "\0", "\u2028\n", "x" * 20000, [], [[]], [7], {},
       {"a": {"b": [None]}}, {"provider": [], "modelId": {}}, [{"role": "user", "content": [{}]}]]


def ask_oddly(method, sound):
    results = errors = 0
    for name in [*sound, "unknown"]:
        for value in ODD:
            _, told = ask(method, {**sound, name: value})
            if "error" in told:
                errors += 1
                assert told["error"]["code"] in (-32602, -32000), told
                assert 0 < len(told["error"]["message"]) < 5000, told
            else:
                results += 1
                assert isinstance(told["result"], dict), told
    return f"{results} {errors}\n"


def tool(id, params):
    what, method, *rest = params["args"]
    wanted = json.loads(rest[0]) if rest else {}
    # The gateway's own words for where this call stands.
    if wanted == "context":
        return answer(id, {"output": json.dumps(params["context"])})
    if what == "toolStart":
        notice = {"requestId": id, "tool": method, "params": wanted}
        say({"jsonrpc": "2.0", "method": "beige/toolStart", "params": notice})
        return answer(id, {"output": ""})
    if what == "odd":
        try:
            return answer(id, {"output": ask_oddly(method, wanted)})
        except AssertionError as wrong:
            return answer(id, {"output": f"{method}: {wrong}", "exitCode": 1})
    if what == "begin":
        begin(method, wanted)
        return answer(id, {"output": "begun\n"})
    asked, told = ask(method, wanted, until_event=what in ("cancel", "die"))
    if what == "die":
        os._exit(3)
    if what == "cancel":
        params = {"requestId": asked, "reason": "enough"}
        say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    answer(id, {"output": json.dumps(told) + "\n"})


def hook(id, params):
    """Asks back while it is asked, where a prompt says so."""
    event = params["event"]
    result = {}
    with open("heard.jsonl", "a", encoding="utf-8") as heard:
        heard.write(json.dumps([params["hook"], event["sessionKey"]]) + "\n")
    if params["hook"] == "prePrompt":
        result = {"message": event["message"]}
        if event["message"].startswith("ask me"):
            wanted = {"sessionKey": event["sessionKey"], "agentName": "a", "message": "again"}
            _, told = ask("beige/prompt", wanted)
            result["message"] = json.dumps(told)
    answer(id, result)


def send(id, params):
    if params["text"] == "refuse":
        return say({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "no such chat"}})
    with open("sent.jsonl", "a", encoding="utf-8") as sent:
        sent.write(json.dumps(params) + "\n")
    answer(id, {})


def started(method, *arguments):
    threading.Thread(target=method, args=arguments, daemon=True).start()


for line in sys.stdin:
    it = json.loads(line)
    id, method, params = it.get("id"), it.get("method"), it.get("params")
    if method == "initialize":
        beige = {"version": 1, "channel": {"supportsMessaging": True}}
        answer(id, {"capabilities": {"experimental": {"beige": beige}}})
    elif method in ("beige/start", "beige/stop"):
        answer(id, {})
    elif method == "beige/tool":
        started(tool, id, params)
    elif method == "beige/hook":
        started(hook, id, params)
    elif method == "beige/channel/send":
        started(send, id, params)
    elif method == "beige/promptEvent":
        waiting[params["requestId"]].put(("event", params["event"]))
    elif id in waiting:
        kind = "error" if "error" in it else "result"
        waiting[id].put((kind, it[kind]))
