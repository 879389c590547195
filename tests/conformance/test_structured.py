"""Section K of the checklist: structured output. Every answer is judged by a program of somebody else.

The scripted model likes to end everywhere; where the grammar does not let it, all tokens are equally likely. So its answers
are random walks through the grammar, with a bias towards what closes.
"""
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import time
import typing

import jsonschema
import openai
import openai.lib._pydantic
import pydantic
import pytest

import make_scripted_model as script
from conftest import chat_body, error_of, servers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDS = script.vocabulary()
CLOSING = {str(IDS[script.spell(text)]): bias for text, bias in
           {b'"': 5, b"}": 3, b"]": 3, b",": 1, b" ": -1, b"\n": -2, b"\\": -2}.items()}


def answers(server, fields, seeds, **more):
    """Texts and finish reasons of random answers, asked for together."""
    def ask(seed):
        body = {"prompt": "x", "temperature": 1.0, "seed": seed, "max_tokens": 200, "logit_bias": CLOSING, **more, **fields}
        status, _, text = server.post(COMPLETIONS, body)
        assert status == 200, text
        choice = json.loads(text)["choices"][0]
        return choice["text"], choice["finish_reason"]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(ask, seeds))


def schema_field(schema, strict=True):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": strict, "schema": schema}}}


def refused(server, fields, **more):
    return error_of(server.post(CHAT, chat_body(**fields, **more)), 400)


def test_k94_json_object(server):
    whole = 0
    for text, finish in answers(server, {"response_format": {"type": "json_object"}}, range(50)):
        assert not re.search(r"\s{17}", text)
        if finish == "stop":
            whole += 1
            assert isinstance(json.loads(text), dict)
    assert whole >= 25, whole


class Step(pydantic.BaseModel):
    """A part."""
    name: str = pydantic.Field(description="what to do", max_length=12)
    minutes: int = pydantic.Field(ge=1, le=90)
    kind: typing.Literal["think", "act"]
    note: str | None


class Plan(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    steps: list[Step] = pydantic.Field(min_length=1, max_length=2)
    done: bool
    score: float
    first: Step | None


PLAN = openai.lib._pydantic.to_strict_json_schema(Plan)


def test_k95_strict_schema(server):
    whole = 0
    for text, finish in answers(server, schema_field(PLAN), range(50)):
        if finish != "stop":
            continue
        whole += 1
        value = json.loads(text)
        jsonschema.Draft202012Validator(PLAN).validate(value)
        Plan.model_validate(value)
        assert list(value) == ["steps", "done", "score", "first"]
    assert whole >= 25, whole


class Verdict(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    right: bool
    parts: list[typing.Literal["a", "b"]] = pydantic.Field(max_length=2)


def test_k95_parse_with_pydantic(server, client):
    for seed in range(5):
        answer = client.chat.completions.parse(model="alias", messages=[{"role": "user", "content": "hi"}], seed=seed,
                                               temperature=1, response_format=Verdict, logit_bias=CLOSING)
        assert isinstance(answer.choices[0].message.parsed, Verdict)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="alias", messages=[{"role": "user", "content": "hi"}], response_format=Plan,
                                      max_tokens=3)


class RandomSchemas:
    """Schemas out of everything that is supported, by seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.definitions = {}

    def document(self):
        schema = self.any(3)
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    def any(self, depth):
        flat = [self.string, self.number, self.constant, self.boolean]
        deep = [self.object, self.object, self.array, self.array, self.alternatives, self.reference, self.all_of]
        return self.random.choice(flat + deep if depth > 0 else flat)(depth)

    def boolean(self, depth):
        return self.random.choice([{"type": "boolean"}, {"type": "null"}, {"type": ["null", "boolean"], "title": "t"}])

    def string(self, depth):
        low = self.random.randint(0, 4)
        return self.random.choice([
            {"type": "string"}, {"type": "string", "minLength": low, "maxLength": low + self.random.randint(0, 5)},
            {"type": "string", "maxLength": 200}, {"type": "string", "pattern": self.random.choice(
                ["^[a-z]{2,5}$", "^(ab|c)+$", r"^\d{3}-\d{2}$", "^[^a-z]{1,4}$", r"^\S{2}$", "^a|b$", "^ä.?$"])},
            {"type": ["string", "integer"], "maxLength": 3, "minimum": 4},
            {"type": "string", "format": self.random.choice(["date", "time", "date-time", "email", "ipv4", "uuid", "other"])}])

    def number(self, depth):
        low = self.random.choice([self.random.randint(-300, 300), round(self.random.uniform(-9, 9), 2)])
        schema = {"type": self.random.choice(["integer", "number"])}
        if self.random.random() < 0.5:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.5:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.choice([2, 17.5, 4000])
        if schema["type"] == "integer" and len(schema) == 1 and self.random.random() < 0.3:
            schema["multipleOf"] = self.random.randint(2, 30)
        return schema

    def constant(self, depth):
        values = [1, -2.5, "x", "é\"\\\n/", None, True, [1, "a"], {"k": None}]
        if self.random.random() < 0.3:
            return {"const": self.random.choice(values)}
        return {"enum": self.random.sample(values, self.random.randint(1, 4))}

    def array(self, depth):
        schema = {"type": "array", "items": self.any(depth - 1)}
        low = self.random.randint(0, 2)
        if self.random.random() < 0.5:
            schema |= {"minItems": low, "maxItems": low + self.random.randint(0, 2)}
        if self.random.random() < 0.25:
            schema["prefixItems"] = [self.any(depth - 1), True]
        if "prefixItems" in schema and self.random.random() < 0.5:
            schema |= {"items": False, "minItems": 0, "maxItems": 2}
        return schema

    def object(self, depth):
        names = self.random.sample(["a", "b", "ab", "long name", "é", "q\"", "d/e~f"], self.random.randint(0, 3))
        schema = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        schema["required"] = [name for name in names if self.random.random() < 0.6]
        if self.random.random() < 0.3:
            schema["additionalProperties"] = self.random.choice([False, True, {"type": "integer"}])
        if not names:
            del schema["properties"], schema["required"]
            schema |= self.random.choice([{}, {"patternProperties": {"^x[0-9]+$": self.any(depth - 1)}},
                                          {"propertyNames": {"maxLength": 3}}])
        elif self.random.random() < 0.3 and "additionalProperties" not in schema:
            schema |= {"minProperties": len(schema["required"]), "maxProperties": len(names)}
        return schema

    def alternatives(self, depth):
        options = [self.any(depth - 1) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.5:
            return {"anyOf": options}
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": index}, "value": option},
                           "required": ["kind", "value"]} for index, option in enumerate(options)]}

    def all_of(self, depth):
        return {"allOf": [{"type": "object", "properties": {"p": self.any(depth - 1)}, "required": ["p"]},
                          {"properties": {"q": self.any(depth - 1)}}]}

    def reference(self, depth):
        name = f"n/{len(self.definitions)}"
        self.definitions[name] = True
        self.definitions[name] = {"anyOf": [self.any(depth - 1), {"type": "array", "items": {"$ref": f"#/$defs/n~1{len(self.definitions) - 1}"},
                                                                  "maxItems": 1}]}
        return {"$ref": "#/$defs/" + name.replace("/", "~1")}


def test_k95_random_schemas(server):
    whole = cut = 0
    for seed in range(60):
        schema = RandomSchemas(seed).document()
        validator = jsonschema.Draft202012Validator(schema)
        for text, finish in answers(server, schema_field(schema), range(6), max_tokens=150):
            if finish != "stop" or "\ufffd" in text:  # bytes that XGrammar takes for a character and UTF-8 does not
                cut += 1
                continue
            whole += 1
            error = next(iter(validator.iter_errors(json.loads(text))), None)
            assert error is None, (seed, json.dumps(schema), text, error)
    assert whole > 2 * cut, (whole, cut)


def test_k95_more_properties(server):
    """B061: none without additionalProperties; with it any but those that have a name."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]}
    more = set()
    for extra in ({}, {"additionalProperties": True}, {"additionalProperties": False}):
        validator = jsonschema.Draft202012Validator({**schema, **extra})
        for text, finish in answers(server, schema_field({**schema, **extra}), range(30), logit_bias={str(IDS['"']): 5, str(IDS[","]): 4}):
            if finish == "stop":
                value = json.loads(text, object_pairs_hook=lambda pairs: pairs)
                assert [name for name, _ in value].count("a") <= 1
                validator.validate(dict(value))
                more |= {bool(extra.get("additionalProperties"))} if len(value) > 2 else set()
    assert more == {True}


def test_k96_what_cannot_be_done(server):
    for schema, words in [
        ({"type": "array", "items": {"type": "object", "properties": {"a": {"not": {}}}}}, ("'not'", "/items/properties/a")),
        ({"type": "array", "uniqueItems": True}, ("uniqueItems",)),
        ({"type": "string", "pattern": "^(?!x)"}, ("pattern",)),
        ({"type": "string", "pattern": "^[a-z]*$", "minLength": 8}, ("pattern", "minLength")),  # B066
        ({"properties": {"x": {"enum": []}}, "required": ["x"]}, ("enum", "/properties/x")),  # B062
        ({"type": "object", "propertyNames": {"pattern": "^[a-c]$"}, "properties": {"z": {}}}, ("propertyNames",)),  # B063
        ({"type": "array", "minItems": 2, "maxItems": 1}, ("minItems",)),  # B067
        ({"$ref": "#/$defs/missing"}, ("$ref", "missing")),  # B069
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, ("$ref",)),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ("never end",)),
    ]:
        started = time.monotonic()
        error = refused(server, schema_field(schema))
        assert time.monotonic() - started < 5
        assert error["param"] == "response_format.json_schema.schema" and all(word in error["message"] for word in words), error


def test_k96_hostile_schemas_stall_nobody(serve):
    """S15: a stream that runs beside them keeps its pace."""
    hostile = [
        {"enum": [f"value {i}" for i in range(9000)]},
        {"type": "array", "minItems": 100000, "items": {"type": "array", "minItems": 100000, "items": {}}},
        {"type": "string", "pattern": "^((((a{1,900}){1,900}){1,900}){1,900})$"},
        {"type": "string", "pattern": "^((a+)+)+(b|c+)+$"},
        {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 100 + i} for i in range(400)}},
    ]
    with serve() as own, concurrent.futures.ThreadPoolExecutor(8) as pool:
        own.complete("x", structured_outputs={"regex": "a"})
        asked = [pool.submit(own.post, CHAT, chat_body(**schema_field(schema), max_tokens=4)) for schema in hostile]
        worst = 0.0
        while not all(one.done() for one in asked):
            started = time.monotonic()
            assert own.text("A") == "The capital of France is Paris ."
            worst = max(worst, time.monotonic() - started)
        assert worst < 5, worst
        assert all(one.result()[0] in (200, 400) for one in asked)
        assert own.text("A", structured_outputs={"choice": ["yes"]}) == "yes"


def test_k97_missing_parts(server):
    for format, param in [
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": 5}}, "response_format.json_schema.schema"),
        ({"type": "yaml"}, "response_format.type"), ({}, "response_format.type"),
    ]:
        assert error_of(server.post(CHAT, chat_body(response_format=format)))["param"] == param, format


GRAMMAR = 'root ::= "(" [a-c]+ ")" | "[" root "]"'
KINDS = {
    "regex": (r"[a-f]{2,6}-\d+(\.\d{2})?", lambda text: re.fullmatch(r"[a-f]{2,6}-\d+(\.\d{2})?", text)),
    "choice": (["red", "dark red", "blue"], lambda text: text in ("red", "dark red", "blue")),
    "grammar": (GRAMMAR, lambda text: re.fullmatch(r"\[*\([abc]+\)\]*", text) and text.count("[") == text.count("]")),
    "json": ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
             lambda text: type(json.loads(text)["n"]) is int),
    "json_object": (True, lambda text: isinstance(json.loads(text), dict)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_k98_vllm_names(server, kind):
    value, judge = KINDS[kind]
    new = answers(server, {"structured_outputs": {kind: value}}, range(12))
    assert new == answers(server, {f"guided_{kind}": value}, range(12))
    assert any(finish == "stop" for _, finish in new)
    assert all(judge(text) for text, finish in new if finish == "stop")


def test_k98_names_of_others(server):
    """llama-server, SGLang, and the oldest form of a structural tag."""
    schema = {"type": "boolean"}
    assert {text for text, _ in answers(server, {"json_schema": schema}, range(12))} == {"true", "false"}
    assert {text for text, _ in answers(server, {"json_schema": json.dumps(schema)}, range(12))} == {"true", "false"}
    for fields in ({"grammar": GRAMMAR}, {"ebnf": GRAMMAR}, {"regex": r"\([abc]+\)"}):
        assert all(text[0] in "([" for text, _ in answers(server, fields, range(4)))
    tag = {"type": "structural_tag", "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}], "triggers": ["<n>"]}
    assert server.chat("A", response_format=tag)["choices"][0]["message"]["content"] == "The capital of France is Paris ."
    forced = {"type": "structural_tag", "format": {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"enum": [7]}},
                                                  "end": "</n>"}}
    assert server.chat("A", response_format=forced)["choices"][0]["message"]["content"] == "<n>7</n>"


def test_k98_one_at_a_time(server):
    for fields in ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, {"guided_regex": "a", "guided_choice": ["b"]},
                   {"response_format": {"type": "json_object"}, "regex": "a"}):
        assert "cannot be combined" in refused(server, fields)["message"]
    for fields in ({"structured_outputs": {}}, {"structured_outputs": {"choice": []}}, {"structured_outputs": {"regex": ""}},
                   {"guided_grammar": ""}, {"guided_json": ""}, {"guided_json": []}, {"structured_outputs": {"whitespace_pattern": "x", "regex": "a"}},
                   {"guided_regex": "a", "min_tokens": 3}, {"guided_regex": "a", "ignore_eos": True}):  # B070, B071
        refused(server, fields)
    assert server.complete("A", structured_outputs=None)["choices"][0]["text"] == "The capital of France is Paris ."


def test_k99_cut_answers_and_mixed_batches(server):
    schemas = [{"type": "object", "properties": {name: {"type": "string", "maxLength": 30}}, "required": [name]} for name in ("left", "right")]
    whole = server.complete("x", **schema_field(schemas[0]), logit_bias=CLOSING, max_tokens=150)["choices"][0]
    assert whole["finish_reason"] == "stop"
    short = server.complete("x", **schema_field(schemas[0]), logit_bias=CLOSING, max_tokens=4)["choices"][0]
    assert short["finish_reason"] == "length" and whole["text"].startswith(short["text"])
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(server.complete, "x", **schema_field(schemas[i % 2]), logit_bias=CLOSING, seed=i, temperature=1, n=2, max_tokens=150)
                for i in range(20)]
        free = [pool.submit(server.text, "A") for _ in range(10)]
    for index, job in enumerate(jobs):
        for choice in job.result()["choices"]:
            if choice["finish_reason"] == "stop":
                assert list(json.loads(choice["text"])) == [("left", "right")[index % 2]]
    assert {job.result() for job in free} == {"The capital of France is Paris ."}


def test_k99_streams_and_repeats(server):
    """Streamed, alone or in a batch, a seed gives the same answer; logprobs tell of the tokens that were chosen."""
    fields = {"prompt": "x", "temperature": 1, "seed": 5, "max_tokens": 100, "logit_bias": CLOSING, "logprobs": 2, **schema_field(PLAN)}
    whole = json.loads(server.post(COMPLETIONS, fields)[2])["choices"][0]
    chunks = [chunk["choices"][0] for chunk in server.events(COMPLETIONS, fields)]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert "".join(whole["logprobs"]["tokens"]) == whole["text"]
    assert all(value is not None and value <= 0 for value in whole["logprobs"]["token_logprobs"])
    assert {text for text, _ in answers(server, schema_field(PLAN), [5] * 8, max_tokens=100)} == {whole["text"]}
    stopped = json.loads(server.post(COMPLETIONS, {**fields, "stop": '"done"'})[2])["choices"][0]
    if '"done"' in whole["text"]:
        assert stopped["text"] == whole["text"][:whole["text"].index('"done"')] and stopped["stop_reason"] == '"done"'


def test_k99_preempted_and_cancelled(serve):
    """Rows that lose their pages go on where they were; a client that leaves disturbs nobody."""
    def ask(seed):
        return tight.complete("x", structured_outputs={"regex": "[a-f]{180}"}, seed=seed, temperature=1, max_tokens=180)["choices"][0]["text"]
    with serve("--kv-cache-memory-bytes", "160k", "--max-num-seqs", "8") as tight:
        alone = [ask(seed) for seed in range(6)]
        assert len(set(alone)) == 6 and all(re.fullmatch("[a-f]+", text) for text in alone)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(ask, seed) for seed in range(6)]
            connection = tight.connect()
            connection.request("POST", COMPLETIONS, json.dumps({"prompt": "L", "stream": True, "structured_outputs": {"regex": "( la)+"}}),
                               {"Content-Type": "application/json"})
            connection.getresponse().read(10)
            connection.close()
            assert [job.result() for job in jobs] == alone
        assert tight.metric("vllm:num_preemptions_total") > 0
        tight.wait_idle()


@pytest.fixture(scope="module")
def default_server():
    """The built-in default model, which does not know JSON by heart."""
    tool = pathlib.Path(__file__).parents[2] / "tools" / "fetch_model"
    path = subprocess.run([sys.executable, str(tool), "smollm2"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with servers() as of:
        yield of(path, "--max-num-seqs", 32)


def test_k95_default_model_at_high_temperature(default_server):
    schema = {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, "email": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.org$"}]}},
        "required": ["name", "age", "tags", "email"], "additionalProperties": False}
    body = chat_body(**schema_field(schema), max_tokens=400)
    def ask(seed):
        return json.loads(default_server.post(CHAT, {**body, "temperature": 1.5, "seed": seed})[2])["choices"][0]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        choices = list(pool.map(ask, range(12)))
    assert sum(choice["finish_reason"] == "stop" for choice in choices) >= 10
    for choice in choices:
        if choice["finish_reason"] == "stop":
            jsonschema.Draft202012Validator(schema).validate(json.loads(choice["message"]["content"]))
