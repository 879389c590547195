#!/usr/bin/env python3
"""Makes the reference values of the chat-template tests with Python's jinja2 3.1.6, set up as `transformers` does it.

usage: make_template_cases.py OUTPUT_DIRECTORY [DIRECTORY_OF_REAL_TEMPLATES]

Writes template_cases.json (snippets with their output) and, given real templates, template_hashes.json: FNV-1a hashes
of what each renders for every conversation of template_conversations.json, which stands in OUTPUT_DIRECTORY. Instead of
a hash stands "error" for a failure of jinja2's, and "error: " and the message for one that the template raises itself.
template_texts.json has the whole texts of some.
Differences from `transformers`, on purpose: list.append and list.pop are allowed, because published templates use them;
and there is a filter from_json, which templates of DeepSeek expect.
"""

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_snippets import SNIPPETS, VARIABLES

SHOWN = ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "meta-llama-Llama-3.1-8B-Instruct", "deepseek-ai-DeepSeek-V3.1",
         "google-gemma-4-31B-it", "mistralai-Mistral-Nemo-Instruct-2407")
TOLD = ("system and several turns", "unicode everywhere", "rounds of tools with thinking")
UNIX_TIME = 1721990096  # 26 Jul 2024 10:34:56 UTC


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Environment(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj, attr, value):
        if isinstance(obj, list) and attr in ("append", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)


class OwnError(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise OwnError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(text):
    return datetime.fromtimestamp(UNIX_TIME, timezone.utc).strftime(text)


def environment():
    result = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    result.filters["tojson"] = tojson
    result.filters["from_json"] = json.loads
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = strftime_now
    return result


def render(source, variables):
    """The output, or None when there was an error."""
    try:
        text = environment().from_string(source).render(**json.loads(json.dumps(variables)))
        text.encode()
        return text
    except Exception:  # whatever it was, our engine has to refuse too
        return None


def own_error(source, variables):
    """The message that the template itself raises, or nothing."""
    try:
        environment().from_string(source).render(**json.loads(json.dumps(variables)))
    except OwnError as error:
        return f": {error}"
    except Exception:
        pass
    return ""


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def main():
    output = Path(sys.argv[1])
    cases = [[source, render(source, VARIABLES)] for source in SNIPPETS]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    variables = json.dumps(VARIABLES, ensure_ascii=False)
    (output / "template_cases.json").write_text(f'{{"variables": {variables},\n"cases": [\n{lines}\n]}}\n')
    if len(sys.argv) < 3:
        return
    conversations = json.loads((output / "template_conversations.json").read_text())
    hashes = {}
    samples = []
    for path in sorted(Path(sys.argv[2]).glob("*.jinja")):
        source = path.read_text()
        texts = [render(source, c["variables"]) for c in conversations]
        hashes[path.stem] = ["error" + own_error(source, c["variables"]) if text is None else fnv1a(text)
                             for text, c in zip(texts, conversations)]
        if path.stem in SHOWN:
            samples += [[path.stem, c["name"], text] for text, c in zip(texts, conversations) if text and c["name"] in TOLD]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in hashes.items())
    (output / "template_hashes.json").write_text("{\n" + lines + "\n}\n")
    lines = ",\n".join(json.dumps(sample, ensure_ascii=False) for sample in samples)
    (output / "template_texts.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()
