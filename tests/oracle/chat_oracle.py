"""Random conversations as transformers renders them with Qwen3's chat template.

usage: chat_oracle.py DIR COUNT      DIR/cases.jsonl: messages, tools, generate, text

The template below is written from the documented behaviour of Qwen3's own.  Where TRL is installed (tools/setup
oracle), its copy of Qwen3's template has to give the same text.
"""
import importlib.util
import json
import os
import random
import sys

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATE = r"""
{%- macro turn(role) -%}{{ '<|im_start|>' + role + '\n' }}{{ caller() }}{{ '<|im_end|>\n' }}{%- endmacro -%}
{%- set given = messages[0].role == 'system' -%}
{%- if given or tools -%}
    {%- call turn('system') -%}
        {{ messages[0].content if given }}
        {%- if tools -%}
            {{ '\n\n' if given }}{{ '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' }}
            {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
            {%- for tool in tools -%}{{ '\n' }}{{ tool | tojson }}{%- endfor -%}
            {{ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n' }}
            {{- '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
        {%- endif -%}
    {%- endcall -%}
{%- endif -%}
{%- set query = namespace(at=messages | length) -%}
{%- for m in messages if m.role == 'user' and not (m.content[:15] == '<tool_response>' and m.content[-16:] == '</tool_response>') -%}
    {%- if loop.last -%}{%- set query.text = m -%}{%- set query.found = true -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages if query.found -%}{%- if m is sameas query.text -%}{%- set query.at = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
    {%- set before = messages[loop.index0 - 1].role if not loop.first else '' -%}
    {%- set after = messages[loop.index0 + 1].role if not loop.last else '' -%}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) -%}
        {%- call turn(m.role) -%}{{ m.content }}{%- endcall -%}
    {%- elif m.role == 'tool' -%}
        {{ '<|im_start|>user' if before != 'tool' }}{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}{{ '<|im_end|>\n' if after != 'tool' }}
    {%- elif m.role == 'assistant' -%}
        {%- set parts = (m.content or '').split('</think>') -%}
        {%- set own = m.reasoning_content is string -%}
        {%- set think = m.reasoning_content if own else parts[0].rstrip('\n').split('<think>')[-1] if parts | length > 1 else '' -%}
        {%- set text = m.content or '' if own or parts | length == 1 else parts[-1].lstrip('\n') -%}
        {%- set shown = loop.index0 > query.at and (loop.last or (think if own else think.lstrip('\n'))) -%}
        {%- call turn('assistant') -%}
            {{ '<think>\n' + think.strip('\n') + '\n</think>\n\n' if shown }}{{ text.lstrip('\n') if shown else text }}
            {%- for call in m.tool_calls or [] -%}
                {%- set f = call.function or call -%}
                {{ '\n' if text or not loop.first }}{{ '<tool_call>\n{"name": "' + f.name + '", "arguments": ' }}
                {{- f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}\n</tool_call>' }}
            {%- endfor -%}
        {%- endcall -%}
    {%- endif -%}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}"""

out, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(11)
WORDS = ["", "\n", "\n\n", "hi", " x ", "<think>", "</think>", "<think>\nhm\n</think>\n\nok", "<tool_response>",
         "</tool_response>", "é\u0007\"\\",
         "<|im_end|>", "a\nb", "\t"]


def text():
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(4)))


def value(depth=0):
    k = rng.randrange(10 if depth < 3 else 8)
    if k == 8:
        return [value(depth + 1) for _ in range(rng.randrange(3))]
    if k == 9:
        return {rng.choice("abcde") + text(): value(depth + 1) for _ in range(rng.randrange(3))}
    return [rng.choice((True, False, None)), rng.randrange(-10 ** 9, 10 ** 12), rng.random(),
            rng.uniform(-9, 9) * 10.0 ** rng.randrange(-30, 30),
            10.0 ** rng.randrange(-8, 24), float(rng.randrange(10 ** 17)), text(),
            text() + chr(rng.randrange(1, 0x250))][k]


def arguments():
    return {rng.choice("abcde"): value() for _ in range(rng.randrange(3))}


def message(first):
    role = rng.choice(["user", "user", "assistant", "assistant", "assistant", "tool", "tool"]
                      + ["system"] * (3 if first else 1))
    m = {"role": role, "content": text()}
    if role == "user" and rng.random() < .3:
        m["content"] = "<tool_response>" + m["content"] + "</tool_response>"
    if role == "assistant" and rng.random() < .4:
        m["reasoning_content"] = rng.choice((text(), "\nhm\n", "", None))
    if role == "assistant" and rng.random() < .5:
        calls = [{"name": rng.choice(("write", "bash")), "arguments": arguments()} for _ in range(rng.randrange(1, 4))]
        for c in calls:
            if rng.random() < .5:
                c["arguments"] = json.dumps(c["arguments"])
        m["tool_calls"] = [{"id": "c", "type": "function", "function": c} if rng.random() < .7 else c for c in calls]
        if rng.random() < .2:
            m["content"] = None
    return m


def render(template, messages, tools, generate):
    return render_jinja_template(conversations=[messages], tools=tools, chat_template=template,
                                 add_generation_prompt=generate)[0][0]


trl = importlib.util.find_spec("trl")
theirs = os.path.join(os.path.dirname(trl.origin), "chat_templates/qwen3.jinja") if trl else None
if theirs and os.path.exists(theirs):
    with open(theirs, encoding="utf-8") as f:
        theirs = f.read()
else:
    theirs = None
with open(out + "/cases.jsonl", "w", encoding="utf-8") as f:
    for i in range(count):
        messages = [message(k == 0) for k in range(rng.randrange(1, 9))]
        tools = [{"type": "function", "function": {"name": "write", "description": text(), "parameters": arguments()}}
                 for _ in range(rng.randrange(3))] or None
        case = dict(messages=messages, tools=tools, generate=rng.random() < .5)
        case["text"] = render(TEMPLATE, **case)
        if theirs:
            want = render(theirs, messages, tools, case["generate"])
            assert want == case["text"], (messages, want, case["text"])
        f.write(json.dumps(case, ensure_ascii=False) + "\n")
print("with TRL's copy of Qwen3's template" if theirs else "by the template of this script")
