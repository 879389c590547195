#!/usr/bin/env python3
"""Makes replies with tool calls as real chat templates render them, for the tests of the parsers that read them back.

usage: make_tool_call_cases.py OUTPUT_DIRECTORY DIRECTORY_OF_REAL_TEMPLATES

Writes tool_call_cases.json: for every template, the parts of a conversation that an assistant's message with calls adds
to it, and the calls that were given. jinja2 is set up as in make_template_cases.py.
"""

import json
import re
import sys
from pathlib import Path

from make_template_cases import environment

USER = {"role": "user", "content": "hi"}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "where"}, "days": {"type": "integer", "description": "how long"},
            "exact": {"type": "boolean", "description": "or not"}}}}},
    {"type": "function", "function": {
        "name": "save_file", "description": "Saves a file.",
        "parameters": {"type": "object", "required": ["path", "text"], "properties": {
            "path": {"type": "string", "description": "where"}, "text": {"type": "string", "description": "what"},
            "options": {"type": "object", "description": "how"}, "tags": {"type": "array", "description": "names"}}}}},
]
WEATHER = ("get_weather", {"city": "Zürich", "days": 3})
FILE = ("save_file", {"path": "a/b.txt", "text": "mkdir -p test/{a,b \"x\" \\ <b>日本 😀</b>\n  two</c>\n",
                      "options": {"deep": [1, {"k": [None, True, -2.5e3]}], "empty": {}}, "tags": ["x", "]}", "</tool_call"]})
EMPTY = ("get_weather", {"city": ""})
CASES = [
    ("one call", "", "", [WEATHER]),
    ("nested arguments", "", "", [FILE]),
    ("text before", "Let me look. {1}", "", [WEATHER]),
    ("several calls", "", "", [FILE, WEATHER, EMPTY]),
    ("reasoning", "", "I should ask\nthe weather service.", [WEATHER]),
    ("text, reasoning and several", "Both:", "Two calls.", [WEATHER, FILE]),
]
TEMPLATES = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen3_coder",
    "Qwen3.5-4B": "qwen3_coder",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3_coder",
    "ByteDance-Seed-OSS": "seed_oss",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3_json",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v3",
    "deepseek-ai-DeepSeek-V3.1": "deepseek_v31",
    "openai-gpt-oss-120b": "openai",
    "GLM-4.6": "glm45",
    "GLM-4.7-Flash": "glm45",
    "Kimi-K2-Instruct": "kimi_k2",
    "Kimi-K2-Thinking": "kimi_k2",
    "moonshotai-Kimi-K2": "kimi_k2",
    "LFM2.5-8B-A1B": "pythonic",
    "unsloth-Apriel-1.5": "granite",
}
# What ends a turn: an end token, which is not part of the reply.
END = re.compile(r"(<\|im_end\|>\n?|<\|eot_id\|>|</s>|<｜end▁of▁sentence｜>|<\|call\|>|<seed:eos>|<\|end\|>\n?|"
                 r"<\|im_end\|>|<SPECIAL_12>\n?|<\|return\|>)$")
# One call at a time is all they render.
SINGLE = {"meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "openai-gpt-oss-120b"}

NO_CONTENT = {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"}  # a content, even an empty one, is a turn of its own


def assistant(content, reasoning, calls):
    message = {"role": "assistant", "content": content, "tool_calls": [
        {"id": f"abcdefgh{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)]}
    if reasoning:
        message |= {"reasoning_content": reasoning, "thinking": reasoning}
    return message


def reply(source, message):
    """What the message adds to the prompt that the model is asked with, and whether the prompt opened the reasoning."""
    variables = {"bos_token": "<s>", "eos_token": "</s>", "tools": TOOLS}
    template = environment().from_string(source)
    prompts = [template.render(**variables, messages=[USER], add_generation_prompt=True, **more)
               for more in ({}, {"enable_thinking": False}, {"thinking": True})]
    whole = template.render(**variables, messages=[USER, message], add_generation_prompt=False)
    prompts += [re.sub(r"<think>\s*(</think>)?\s*$", "", prompt) for prompt in prompts]
    for prompt in prompts:
        if whole.startswith(prompt):
            text = whole[len(prompt):]
            while END.search(text):
                text = END.sub("", text)
            return text, prompt.rstrip().endswith("<think>")
    return None


def main(output, folder):
    cases = []
    for name, dialect in TEMPLATES.items():
        source = (Path(folder) / f"{name}.jinja").read_text()
        for title, content, reasoning, calls in CASES:
            if (len(calls) > 1 and name in SINGLE) or (content and name in NO_CONTENT):
                continue
            try:
                made = reply(source, assistant(content or (None if name in NO_CONTENT else ""), reasoning, calls))
            except Exception as error:  # what a template refuses
                print(f"{name}: {title}: {error}")
                continue
            if made is None:
                print(f"{name}: {title}: the prompt is no prefix")
                continue
            text, opened = made
            if "{'deep'" in text:
                continue  # a template that renders Python's repr
            if dialect == "openai" and content:
                content, reasoning = "", content  # where the template puts it
            cases.append({"template": name, "dialect": dialect, "title": title, "reply": text, "opened": opened,
                          "content": content if content and content in text else "",
                          "reasoning": reasoning if reasoning and reasoning in text else "",
                          "calls": [{"name": n, "arguments": a} for n, a in calls]})
    path = Path(output) / "tool_call_cases.json"
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    path.write_text(f'{{"tools": {json.dumps(TOOLS)},\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
