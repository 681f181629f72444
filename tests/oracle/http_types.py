#!/usr/bin/env python3
"""Hold requests of our HTTP policies to the types of the official SDKs, and the scripted server to the SDKs' own
clients.

    http_types.py DIR REQUESTS      REQUESTS: one {"protocol", "body"} a line, as src/policy/http makes them"""
import gc
import importlib.util
import json
import os
import sys
import threading
import typing

gc.disable()  # half of what the imports take
import anthropic  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
from anthropic.types import RawMessageStreamEvent  # noqa: E402
from anthropic.types.message_create_params import MessageCreateParamsStreaming  # noqa: E402
from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: E402
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming  # noqa: E402

gc.freeze()
gc.enable()

EXTENSIONS = {"reasoning", "reasoning_content", "max_tokens"}   # of compatible servers, outside OpenAI's own types
PARAMS = {"openai": CompletionCreateParamsStreaming, "anthropic": MessageCreateParamsStreaming}
ADAPTERS = {name: pydantic.TypeAdapter(params) for name,
            params in PARAMS.items()}    # what they check lazily needs them alive


def known_keys(params):
    return set(typing.get_type_hints(params))


def listed(value):
    """Lists where the SDKs allow any iterable: pydantic checks those lazily."""
    if isinstance(value, (list, tuple)):
        return [listed(v) for v in value]
    if isinstance(value, dict):
        return {k: listed(v) for k, v in value.items()}
    if hasattr(value, "__iter__") and not isinstance(value, (str, bytes)):
        return [listed(v) for v in value]
    return value


def lost(sent, kept, path):
    """What validation dropped: members that the types do not know."""
    if isinstance(sent, dict):
        for k, v in sent.items():
            if k in EXTENSIONS:
                continue
            if k not in kept:
                yield f"{path}.{k}"
            else:
                yield from lost(v, kept[k], f"{path}.{k}")
    elif isinstance(sent, list):
        for i, (a, b) in enumerate(zip(sent, kept, strict=True)):
            yield from lost(a, b, f"{path}[{i}]")
    elif sent != kept:
        yield path


checked = 0
with open(sys.argv[2], encoding="utf-8") as f:
    for line in f:
        request = json.loads(line)
        params = PARAMS[request["protocol"]]
        kept = listed(ADAPTERS[request["protocol"]].validate_python(request["body"]))
        dropped = list(lost(request["body"], kept, request["protocol"]))
        assert not dropped, f"not in the SDK's types: {dropped}"
        assert not set(request["body"]) - known_keys(params) - EXTENSIONS
        checked += 1
assert checked >= 8, checked

# ---- The scripted server against the SDKs' clients

spec = importlib.util.spec_from_file_location("server", os.path.join(os.path.dirname(__file__), "../http/server.py"))
server = importlib.util.module_from_spec(spec)
spec.loader.exec_module(server)
events = pydantic.TypeAdapter(RawMessageStreamEvent)
for scenario in ("plain", "calls10", "refusal", "filtered", "length", "reasoning"):
    for c in server.chunks(scenario):
        ChatCompletionChunk.model_validate(c, strict=True)
    for e in server.events(scenario):
        if e["type"] != "ping":
            events.validate_python(e)
ChatCompletion.model_validate(server.whole_completion(), strict=True)
anthropic.types.Message.model_validate(server.whole_message())

serving = server.Server(("127.0.0.1", 0), server.Handler)
threading.Thread(target=serving.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{serving.server_address[1]}/plain"
talk = [{"role": "user", "content": "hello"}]
text, arguments = "", {}
for c in openai.OpenAI(base_url=base + "/v1", api_key="x").chat.completions.create(model="m", messages=talk,
                                                                                   stream=True):
    for choice in c.choices:
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
assert text == server.TEXT and arguments[1] == server.ARGUMENTS
with anthropic.Anthropic(base_url=base, api_key="x").messages.stream(model="m", max_tokens=100,
                                                                     messages=talk) as stream:
    message = stream.get_final_message()
kinds = [b.type for b in message.content]
assert kinds == ["thinking", "redacted_thinking", "text", "tool_use",
                 "tool_use"] and message.content[0].signature == server.SIGNATURE
assert message.content[4].input == json.loads(
    server.ARGUMENTS) and message.stop_reason == "tool_use" and message.usage.output_tokens == 50
print(f"{checked} requests, both clients")
