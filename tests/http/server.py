#!/usr/bin/env python3
"""A model server on the loopback interface that plays every fault of both protocols, by script.

    server.py [LOG [SCRIPT]]   prints its port, then serves until standard input ends; LOG gets one JSON line a request

SCRIPT is a JSON list of turns, each a list of [tool, arguments], that the scenario "agent" plays.

The path says what to play: /SCENARIO/v1/chat/completions and /SCENARIO/v1/messages.  Each scenario counts its requests,
so that a first attempt can fail and a second succeed.  `chunks` and `events` make what a good server sends; the oracle
test holds them to the types of the official SDKs."""
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

THINKING = "Rows are short.\nOne block a row; \"vectors\" of 4 \u2014 done."
SIGNATURE = "sig+/=="
TEXT = "I look first: \u00e9\u4e2d\U0001f600."
ARGUMENTS = '{"path": "kernels.c", "text": "int x = 1;\\n\\t\\"quoted\\""}'
GIANT = 5 << 20


def calls_of(scenario):
    if isinstance(scenario, list):
        return [(name, json.dumps(arguments)) for name, arguments in scenario]
    if scenario == "calls10":
        return [("read", json.dumps({"path": "plan.c", "lines": i})) for i in range(10)]
    if scenario == "wrongtool":
        return [("fly", "{}"), ("inspect", "{}")]
    if scenario == "badarguments":
        return [("write", '{"path": "kern')]
    return [("inspect", "{}"), ("write", ARGUMENTS)]


def pieces(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


# ---- Chat completions


def chunk(delta=None, finish=None, usage=None):
    choices = [] if usage else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    o = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m", "choices": choices}
    if usage:
        o["usage"] = usage
    return o


def chunks(scenario):
    """The chunks of a good reply in this scenario."""
    field = "reasoning" if scenario == "reasoning" else "reasoning_content"
    out = [chunk({"role": "assistant", "content": ""})]
    if scenario == []:
        out += [chunk({"content": "The end."}), chunk({}, "stop")]
    elif scenario == "refusal":
        out += [chunk({"refusal": "I would "}), chunk({"refusal": "rather not."}), chunk({}, "stop")]
    elif scenario == "filtered":
        out += [chunk({"content": "I beg"}), chunk({}, "content_filter")]
    elif scenario == "length":
        out += [chunk({"content": p}) for p in pieces(TEXT, 3)] + [chunk({}, "length")]
    else:
        out += [chunk({field: p}) for p in pieces(THINKING, 7)] + [chunk({"content": p}) for p in pieces(TEXT, 3)]
        calls = calls_of(scenario)
        for i, (name, _) in enumerate(calls):
            out.append(chunk({"tool_calls": [{"index": i, "id": f"srv-{i}", "type": "function",
                                              "function": {"name": name, "arguments": ""}}]}))
        parts = [pieces(a, 5) for _, a in calls]
        for k in range(max(map(len, parts))):       # pieces of several calls interleaved
            for i, p in enumerate(parts):
                if k < len(p):
                    out.append(chunk({"tool_calls": [{"index": i, "function": {"arguments": p[k]}}]}))
        out.append(chunk({}, "tool_calls"))
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
             "prompt_tokens_details": {"cached_tokens": 600}}
    return out + [chunk(usage=usage)]


def whole_completion():
    message = {"role": "assistant", "content": TEXT, "reasoning_content": THINKING,
               "tool_calls": [{"id": f"srv-{i}", "type": "function", "function": {"name": n, "arguments": a}}
                              for i, (n, a) in enumerate(calls_of("whole"))]}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
                      "prompt_tokens_details": {"cached_tokens": 600}}}


# ---- Messages


def block(i, start, deltas):
    return [{"type": "content_block_start", "index": i, "content_block": start}] + \
           [{"type": "content_block_delta", "index": i, "delta": d}
            for d in deltas] + [{"type": "content_block_stop", "index": i}]


def events(scenario):
    """The events of a good reply in this scenario."""
    usage = {"input_tokens": 300, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 600,
             "output_tokens": 1}
    out = [{"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                                                 "content": [],
                                                 "stop_reason": None, "stop_sequence": None, "usage": usage}},
           {"type": "ping"}]
    stop = "tool_use"
    if scenario in ("refusal", "filtered", "length"):
        out += block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(TEXT, 3)])
        stop = "max_tokens" if scenario == "length" else "refusal"
    else:
        out += block(0, {"type": "thinking", "thinking": "", "signature": ""},
                     [{"type": "thinking_delta", "thinking": p} for p in pieces(THINKING, 7)] +
                     [{"type": "signature_delta", "signature": SIGNATURE}])
        out += block(1, {"type": "redacted_thinking", "data": "b64=="}, [])
        out += block(2, {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(TEXT, 3)])
        for i, (name, arguments) in enumerate(calls_of(scenario), 3):
            out += block(i, {"type": "tool_use", "id": f"toolu_{i - 3}", "name": name, "input": {}},
                         [{"type": "input_json_delta", "partial_json": p} for p in [""] + pieces(arguments, 5)])
    return out + [{"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
                   "usage": {"output_tokens": 50}},
                  {"type": "message_stop"}]


def whole_message():
    content = [{"type": "thinking", "thinking": THINKING, "signature": SIGNATURE},
               {"type": "redacted_thinking", "data": "b64=="},
               {"type": "text", "text": TEXT}]
    content += [{"type": "tool_use", "id": f"toolu_{i}", "name": n, "input": json.loads(a)} for i,
                (n, a) in enumerate(calls_of("whole"))]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "tool_use",
            "stop_sequence": None, "usage": {"input_tokens": 300, "cache_creation_input_tokens": 100,
                                             "cache_read_input_tokens": 600,
                                             "output_tokens": 50}}


# ---- What a second request must hold of the first reply


def check_openai(body):
    m = body["messages"]
    said = next(x for x in m if x["role"] == "assistant")
    field = next((f for f in ("reasoning", "reasoning_content") if f in said), None)
    answers = [x for x in m if x["role"] == "tool"]
    return (said["content"] == TEXT and said.get(field) == THINKING
            and [c["id"] for c in said["tool_calls"]] == ["srv-0", "srv-1"]
            and said["tool_calls"][1]["function"]["arguments"] == ARGUMENTS
            and [a["tool_call_id"] for a in answers] == ["srv-0", "srv-1"]
            and field)


def check_anthropic(body):
    said, answer = body["messages"][1], body["messages"][2]
    expected = [{"type": "thinking", "thinking": THINKING, "signature": SIGNATURE},
                {"type": "redacted_thinking", "data": "b64=="},
                {"type": "text", "text": TEXT}, {"type": "tool_use", "id": "toolu_0", "name": "inspect", "input": {}},
                {"type": "tool_use", "id": "toolu_1", "name": "write", "input": json.loads(ARGUMENTS)}]
    results = [b for b in answer["content"] if b["type"] == "tool_result"]
    return said["content"] == expected and [b["tool_use_id"] for b in results] == ["toolu_0", "toolu_1"] and "thinking"


# ---- Serving

seen, lock, log, script = {}, threading.Lock(), None, []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, *a):
        pass

    def refuse(self, status, error, **headers):
        body = json.dumps(error).encode()
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def put(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def wire(self, messages):
        return [(f"data: {json.dumps(m)}\n\n" if self.openai else f"event: {m['type']}\n"
                                                                  f"data: {json.dumps(m)}\n\n").encode()
                for m in messages] + ([b"data: [DONE]\n\n"] if self.openai else [])

    def stream(self, parts):
        self.begin()
        self.put(b"".join(parts))
        self.wfile.write(b"0\r\n\r\n")

    def good(self, scenario):
        self.stream(self.wire(chunks(scenario) if self.openai else events(scenario)))

    def cut(self, parts):
        self.begin()
        self.put(b"".join(parts))
        self.close_connection = True

    def do_POST(self):
        scenario = self.path.split("/")[1]
        self.openai = self.path.endswith("/chat/completions")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            key = (scenario, self.openai)
            n = seen[key] = seen.get(key, 0) + 1
            if log:
                log.write(json.dumps({"path": self.path, "n": n, "body": body}) + "\n")
                log.flush()
        getattr(self, "play_" + scenario, lambda n, body: self.good(scenario))(n, body)

    def play_r429(self, n, body):
        self.good("plain") if n > 1 else self.refuse(429, {"error": {"type": "rate_limit_error", "message": "slowly"}},
                                                     Retry_After="1")

    def play_later(self, n, body):
        self.refuse(429, {"error": {"type": "rate_limit_error", "message": "much slower"}}, Retry_After="60")

    def play_silent(self, n, body):
        time.sleep(3)
        self.close_connection = True

    def play_r5xx(self, n, body):
        status = {1: 500, 2: 529, 3: 503}.get(n)
        self.refuse(status, {"type": "error", "error": {"type": "overloaded_error",
                                                        "message": "busy"}}) if status else self.good("plain")

    def play_down(self, n, body):
        self.refuse(500, {"error": "always"})

    def play_cut(self, n, body):
        parts = self.wire(chunks("plain") if self.openai else events("plain"))
        self.good("plain") if n > 1 else self.cut(parts[:len(parts) // 2] + [parts[len(parts) // 2][:9]])

    def play_late(self, n, body):
        """Cut after the reason to stop: nothing of the reply is missing."""
        self.cut(self.wire(chunks("plain") if self.openai else events("plain"))[:-2 if self.openai else -1])

    def play_drip(self, n, body):
        self.begin()
        for p in self.wire(chunks("plain") if self.openai else events("plain")):
            for b in pieces(p, 40):
                self.put(b)
                time.sleep(0.0005)
        self.wfile.write(b"0\r\n\r\n")

    def play_stall(self, n, body):
        if n > 1:
            return self.good("plain")
        self.begin()
        self.put(self.wire(chunks("plain") if self.openai else events("plain"))[0])
        time.sleep(1.5)
        self.close_connection = True

    def play_slow(self, n, body):
        """A stream that goes on, a byte at a time, and never comes to its end."""
        if n > 1:
            return self.good("plain")
        self.begin()
        try:
            for b in pieces(b"".join(self.wire(chunks("plain") if self.openai else events("plain"))), 1)[:300]:
                self.put(b)
                time.sleep(0.01)
        except OSError:
            pass    # the client has waited long enough
        self.close_connection = True

    def play_badjson(self, n, body):
        parts = self.wire(chunks("plain") if self.openai else events("plain"))
        self.good("plain") if n > 1 else self.stream(parts[:3] + [b"data: {\"broken\": \n\n"] + parts[3:])

    def play_inerror(self, n, body):
        parts = self.wire(chunks("plain") if self.openai else events("plain"))
        trouble = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        self.good("plain") if n > 1 else self.stream(parts[:4] + [f"data: {json.dumps(trouble)}\n\n".encode()])

    def play_giant(self, n, body):
        piece = "x" * (256 << 10)
        if self.openai:
            parts = self.wire([chunk({"tool_calls": [{"index": 0, "id": "a",
                                                      "function": {"name": "write", "arguments": '{"text": "'}}]})] +
                              [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})] * (
                                  GIANT // len(piece)))
        else:
            parts = self.wire(events("plain")[:1] + block(0, {"type": "tool_use", "id": "a", "name": "write",
                                                              "input": {}},
                                                           [{"type": "input_json_delta",
                                                             "partial_json": piece}] * (GIANT // len(piece))))
        try:
            self.stream(parts)
        except OSError:
            self.close_connection = True    # the client has enough

    def play_toolong(self, n, body):
        self.refuse(400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 300000 tokens > "
                                                                                "200000 maximum",
                                    "code": "context_length_exceeded"}})

    def play_wrongkey(self, n, body):
        key = self.headers.get("x-api-key") or self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.refuse(401, {"error": {"message": f"Incorrect API key provided: {key}."}}, request_id=f"req-{key}")

    def play_echokey(self, n, body):
        key = self.headers.get("x-api-key") or self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.openai:
            self.stream(self.wire([chunk({"content": f"your key is {key}"}), chunk({}, "stop")]))
        else:
            self.stream(self.wire(events("plain")[:1] + block(0, {"type": "text", "text": f"your key is {key}"}, [])
                                  + events("plain")[-2:]))

    def play_nomodel(self, n, body):
        self.refuse(404, {"error": {"message": f"The model {body['model']} does not exist"}})

    def play_quota(self, n, body):
        self.refuse(429, {"error": {"type": "insufficient_quota", "message": "You exceeded your current quota "
                                                                             "(insufficient_quota)"}})

    def play_whole(self, n, body):
        self.refuse(200, whole_completion() if self.openai else whole_message())

    def play_html(self, n, body):
        self.send_response(502)
        self.send_header("Content-Length", "40")
        self.end_headers()
        self.wfile.write(b"<html>\x1b[31mbad gateway\xff</html>".ljust(40))

    def play_agent(self, n, body):
        """A reply of some 30 ms, so that a client can be killed in the middle of one."""
        turn = sum(m["role"] == "assistant" for m in body["messages"])
        play = script[turn] if turn < len(script) else []
        parts = self.wire(chunks(play) if self.openai else events(play))
        self.begin()
        for some in range(6):
            self.put(b"".join(parts[len(parts) * some // 6:len(parts) * (some + 1) // 6]))
            time.sleep(0.005)
        self.wfile.write(b"0\r\n\r\n")

    def play_second(self, n, body):
        if n == 1:
            return self.good("plain")
        verdict = (check_openai if self.openai else check_anthropic)(body)
        text = f"returned: {verdict}"
        if self.openai:
            self.stream(self.wire([chunk({"content": text}), chunk({}, "stop")]))
        else:
            self.stream(self.wire(events("plain")[:1] + block(0, {"type": "text", "text": text}, []) + [
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
                {"type": "message_stop"}]))


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass    # a client that hung up


if __name__ == "__main__":
    if len(sys.argv) > 1:
        log = open(sys.argv[1], "a", encoding="utf-8")
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as f:
            script = json.load(f)
    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    sys.stdin.read()
