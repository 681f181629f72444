"""The official openai client against `warpwright serve --models`: openai_client.py WARPWRIGHT ROOT.  Prints TAP."""
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
os.environ["WARPWRIGHT"], ROOT = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(ROOT, "tests/cli/lib"))
from tap import finish, ok  # noqa: E402
import tiny_model  # noqa: E402

gc.disable()  # half of what the import takes
import jsonschema  # noqa: E402
import openai  # noqa: E402

gc.freeze()
gc.enable()

WW = sys.argv[1]
tmp = tempfile.mkdtemp(prefix="ww-openai-")
tiny_model.make(os.path.join(tmp, "one"), 2048)
tiny_model.make(os.path.join(tmp, "two"), 1024)
server = subprocess.Popen([WW, "serve", "--port", "0", "--json", "--target", "cpu", "--models",
                           f"{tmp}/one,second={tmp}/two",
                           "--model-batch", "2", "--model-cache", "1500"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
line = server.stdout.readline()
if not line:
    sys.exit("the server did not start: " + server.stderr.read())
client = openai.OpenAI(base_url=f"http://127.0.0.1:{json.loads(line)['port']}/v1", api_key="none", max_retries=0,
                       timeout=60)

ok([m.id for m in client.models.list()] == ["one", "second"] and client.models.retrieve("second").id == "second",
   "models")
lengths = [m.max_model_len for m in client.models.list()]
ok(1500 <= lengths[0] < 2048 and lengths[1] == 1024, "--model-cache bounds a context", lengths)

talk = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]
a = client.chat.completions.create(model="one", messages=talk, max_tokens=30, seed=6, logprobs=True, n=2)
first = a.choices[0]
ok(len(a.choices) == 2 and first.message.role == "assistant" and first.finish_reason == "length"
   and a.usage.completion_tokens == 60
   and a.usage.total_tokens == a.usage.prompt_tokens + 60, "chat", a)
ok(all(e.logprob < 0 and isinstance(e.bytes, list) for e in first.logprobs.content), "log-probabilities",
   first.logprobs)
ok(all(e.top_logprobs == [] for e in first.logprobs.content), "no others unless they are asked for")
greedy = client.chat.completions.create(model="one", messages=talk, max_tokens=8, temperature=0, logprobs=True,
                                        top_logprobs=4)
tops = [e.top_logprobs for e in greedy.choices[0].logprobs.content]
ok(len(tops) >= 7 and all(type(x).__name__ == "TopLogprob" for t in tops for x in t) and all(
    len(t) == 4 and t[0].token == e.token and t[0].logprob == e.logprob and sorted(t, key=lambda x: -x.logprob) == t
    for t, e in zip(tops, greedy.choices[0].logprobs.content)),
   "the likeliest tokens of each step, the greedy one first", tops)
pieces = [e for x in client.chat.completions.create(model="one", messages=talk, max_tokens=8, temperature=0,
                                                    logprobs=True, top_logprobs=4, stream=True)
          for c in x.choices if c.logprobs for e in c.logprobs.content or []]
ok([e.top_logprobs for e in pieces] == tops, "the same streamed", pieces)
lists = client.completions.create(model="one", prompt="abc", max_tokens=8, seed=1, logprobs=2).choices[0].logprobs
ok(len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) >= 7
   and lists.text_offset[0] == 0
   and all(0 < len(t) <= 2 and all(x < 0 for x in t.values()) for t in lists.top_logprobs), "text has them as lists",
   lists)

objects = [client.chat.completions.create(model="one", messages=talk, max_tokens=200, seed=i,
                                          response_format={"type": "json_object"}).choices[0] for i in range(10)]
whole = [json.loads(c.message.content) for c in objects if c.finish_reason == "stop"]
ok(whole and all(isinstance(v, dict) for v in whole) and all(c.message.content.startswith("{") for c in objects),
   f"response_format json_object: {len(whole)} of 10 ended, each an object", objects)
color = {"enum": ["red", "green", "blue"]}
leaf = {"type": "object", "properties": {"kind": {"const": "leaf"}, "n": {"type": "integer"}},
        "required": ["kind", "n"], "additionalProperties": False}
tree = {"type": "object", "properties": {"kind": {"const": "pair"}, "left": {"$ref": "#/$defs/any"},
                                         "right": {"$ref": "#/$defs/any"}},
        "required": ["kind", "left", "right"], "additionalProperties": False}
schema = {"type": "object", "additionalProperties": False, "required": ["done", "colors", "score", "tree", "note"],
          "properties": {
    "done": {"type": "boolean"}, "skipped": {"type": "null"}, "colors": {"type": "array", "items": color},
              "score": {"type": ["number", "null"]},
    "tree": {"$ref": "#/$defs/any"}, "note": {"anyOf": [color, {"type": "integer"}]}},
    "$defs": {"any": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/pair"}]}, "leaf": leaf, "pair": tree}}
bound = [client.chat.completions.create(model="one", messages=talk, max_tokens=900, seed=i, response_format={
    "type": "json_schema", "json_schema": {"name": "state", "strict": True, "schema": schema}}).choices[0]
         for i in range(6)]
whole = [json.loads(c.message.content) for c in bound if c.finish_reason == "stop"]
wrong = [e.message for v in whole for e in jsonschema.Draft202012Validator(schema).iter_errors(v)]
ok(len(whole) >= 4 and not wrong and len({v["tree"]["kind"] for v in whole}) == 2,
   f"response_format json_schema: {len(whole)} of 6 ended, each fits", wrong or bound)
again = client.chat.completions.create(model="one", messages=talk, max_completion_tokens=30, seed=6)
ok(again.choices[0].message.content == first.message.content, "the seed repeats")
ok(again.usage.prompt_tokens_details.cached_tokens == 0, "short prompts fill no page")

text, usage, ends = "", None, []
for chunk in client.chat.completions.create(model="one", messages=talk, max_tokens=30, seed=6, stream=True,
                                            stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for c in chunk.choices:
        text += c.delta.content or ""
        ends += [c.finish_reason] if c.finish_reason else []
ok(text == first.message.content and ends == ["length"] and usage.completion_tokens == 30, "streamed", (text, ends))

# What comes back as an assistant's turn with a call, and its result, are understood.
tool = {"type": "function", "function": {"name": "add", "description": "Add.",
                                         "parameters": {"type": "object", "properties": {}}}}
call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}
turns = talk + [{"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "2"}]
b = client.chat.completions.create(model="one", messages=turns, tools=[tool], max_tokens=5, tool_choice="auto", seed=6)
ends = b.usage.completion_tokens < 5  # an untrained model may end its turn at any token
ok(b.choices[0].finish_reason == ("stop" if ends else "length")
   and b.usage.prompt_tokens > a.usage.prompt_tokens + 300, "tools and turns", b)
c = client.chat.completions.create(model="one", messages=turns, tools=[tool], max_tokens=5, seed=6,
                                   tool_choice={"type": "function", "function": {"name": "add"}})
ok(c.choices[0].message.content.startswith('<tool_call>\n{"name": "add", "arguments": ')
   and c.usage.prompt_tokens_details.cached_tokens > 256,
   "a demanded call is begun; the conversation is in the cache", c)

t = client.completions.create(model="second", prompt="abc", max_tokens=12, seed=1, echo=True)
ok(t.choices[0].text.startswith("abc") and t.usage.prompt_tokens == 3, "text", t)
pieces = [x.choices[0].text for x in client.completions.create(model="second", prompt=[97, 98, 99], max_tokens=12,
                                                               seed=1, stream=True)]
ok("abc" + "".join(pieces) == t.choices[0].text, "text streamed", pieces)

for what, kind, make in (
        ("an unknown model", openai.NotFoundError, lambda: client.chat.completions.create(
            model="three", messages=talk)),
        ("a context that is full", openai.BadRequestError,
         lambda: client.completions.create(model="second", prompt="x" * 2000)),
        ("an unsupported parameter", openai.BadRequestError, lambda: client.chat.completions.create(
            model="one", messages=talk, presence_penalty=1)),
        ("a keyword of a schema", openai.BadRequestError, lambda: client.chat.completions.create(
            model="one", messages=talk, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "minProperties": 1}}})),
        ("a temperature out of range", openai.BadRequestError,
         lambda: client.chat.completions.create(model="one", messages=talk, temperature=5))):
    try:
        make()
        ok(False, what + " is refused")
    except kind as e:
        ok(len(e.body["message"]) > 10, f"{what} is refused", e.body)

order = [(c.index, c.finish_reason) for x in client.completions.create(model="one", prompt="abc", max_tokens=30, seed=1,
                                                                       n=3, stream=True) for c in x.choices]
ok(order.index((0, "length")) < [index for index, _ in order].index(2),
   "--model-batch 2: the third of three answers waits for one that ends", order)

# 64 clients at once get what one gets; a client that breaks off is forgotten.
got = {}


def one(i):
    got[i] = client.completions.create(model="one", prompt=f"{i} ", max_tokens=20, seed=i).choices[0].text


stream = client.chat.completions.create(model="one", messages=talk, stream=True)
next(iter(stream))
threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
for x in threads:
    x.start()
stream.close()
for x in threads:
    x.join()
alone = {i: client.completions.create(model="one", prompt=f"{i} ", max_tokens=20, seed=i).choices[0].text
         for i in range(0, 64, 9)}
ok(len(got) == 64 and all(got[i] == alone[i] for i in alone), "64 at once, none mixed up")

server.send_signal(signal.SIGTERM)
ok(server.wait(30) == 0, "SIGTERM ends it with 0", server.stderr.read())
shutil.rmtree(tmp)
finish()
