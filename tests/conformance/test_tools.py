"""Sections L and M of the checklist: tools and reasoning, each test named by its number, through the real client.

The models here are scripted: they say a given text whatever they are asked, in pieces of two or more bytes.
"""
import json
import re
import subprocess

import pytest

import make_scripted_model as script
from conftest import QUERN, Running, error_of, servers

CHAT = "/v1/chat/completions"
CITY = {"city": "Zürich 😀", "days": 3}
FILE = {"path": "a b", "text": "mkdir -p test/{a,b \"q\" \\\n", "more": [{"k": [None, True, -2.5]}]}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                       "required": ["city", "days"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "save_file", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "text": {"type": "string"}, "more": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "now"}},
]

# How a template of each dialect writes an assistant's calls; enough to be recognized, and to render a history.
WRITES = {
    "hermes": "<tool_call>\n{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>",
    "mistral": "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}",
    "granite": "<|tool_call|>[{{ call.function | tojson }}]",
    "openai": "<|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>"
              "{{ call.function.arguments | tojson }}<|call|>",
}
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{% for call in message.tool_calls or [] %}WRITES{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}REASONS"
    "{% if ask is defined %}{{ ask }}{% endif %}{% if open_think %}{{ '<think>\\n' }}{% endif %}{% endif %}")
REASONS = "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n' }}{% endif %}"


def call(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


HERMES = {
    "A": "The answer, plain.\n",
    "C": "Let me look.\n" + call("get_weather", CITY),
    "D": call("save_file", FILE) + "\n" + call("get_weather", CITY) + "\n" + call("now", {}),
    "K": "<think>\nI think\nso.\n</think>\n\nYes, so.",
    "U": "<think>never ready",
    "\n": "It was open.</think>\n\nNow said.",
    "W": "<think>Ask it.</think>" + call("get_weather", CITY),
}
# A grammar watches the calls of this dialect that have its marker, and not those that are bare.
GRANITE = {"M": 'Oops:\n{"name": "now", "arguments": {"x": }} done',
           "C": 'Well <|tool_call|>[{"name": "now", "arguments": {"x": 1}}]'}
# Every special token may occur in one place only.
MISTRAL = {"C": 'Sure. [TOOL_CALLS]get_weather[ARGS]{"city": "Bern", "days": 1}'}
OPENAI = {
    "K": "<|channel|>analysis<|message|>Hm, so.<|end|><|start|>assistant<|channel|>final<|message|>It is so.<|return|>",
    "C": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Bern", "days": 1}<|call|>',
}
MODELS = {"hermes": (HERMES, (), REASONS), "mistral": (MISTRAL, ("[TOOL_CALLS]", "[ARGS]"), ""), "openai": (OPENAI, (), ""),
          "granite": (GRANITE, (), "")}


@pytest.fixture(scope="session")
def talk(tmp_path_factory):
    """talk(dialect): a server whose model speaks it; started once."""
    talking = {}

    def start(dialect):
        if dialect not in talking:
            texts, special, reasons = MODELS[dialect]
            said = script.Script(script.cut(texts, special), TEMPLATE.replace("WRITES", WRITES[dialect]).replace("REASONS", reasons),
                                 special, vocab=768, context=8192)
            talking[dialect] = of(script.write(tmp_path_factory.mktemp("tools") / dialect, said), "--served-model-name", dialect)
        return talking[dialect]
    with servers() as of:
        yield start


@pytest.fixture
def hermes(talk):
    return talk("hermes")


def body(ask, **fields):
    template = {"ask": ask, **fields.pop("chat_template_kwargs", {})}
    return {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "tools": TOOLS,
            "chat_template_kwargs": template, **fields}


def whole(server, ask, **fields):
    status, _, text = server.post(CHAT, body(ask, **fields))
    assert status == 200, text
    return json.loads(text)


def streamed(server, ask, **fields):
    """The deltas of a stream put together as the official client does it, and the chunks."""
    chunks = server.events(CHAT, body(ask, **fields))
    message, finish = {}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != 0:
                continue
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for delta in value:
                        calls = message.setdefault("tool_calls", [])
                        if delta["index"] == len(calls):
                            assert set(delta) == {"index", "id", "type", "function"} and delta["type"] == "function"
                            assert delta["function"]["name"] and delta["function"]["arguments"] == ""
                            calls.append({"id": delta["id"], "type": "function", "function": dict(delta["function"])})
                        else:
                            assert delta["index"] == len(calls) - 1 and set(delta) == {"index", "function"}
                            assert set(delta["function"]) == {"arguments"}
                            calls[-1]["function"]["arguments"] += delta["function"]["arguments"]
                elif key == "function_call":
                    old = message.setdefault(key, {"name": "", "arguments": ""})
                    message[key] = {name: old[name] + value.get(name, "") for name in old}
                elif value is not None:
                    message[key] = message.get(key, "") + value
            finish = choice["finish_reason"] or finish
    return message, finish, chunks


def same(server, ask, **fields):
    """The whole answer's message, after a check that the stream makes the same one."""
    answer = whole(server, ask, **fields)["choices"][0]
    message, finish, _ = streamed(server, ask, **fields)
    wanted = {key: value for key, value in answer["message"].items() if value is not None}
    for one in (message, wanted):
        for made in one.get("tool_calls", []):
            assert re.fullmatch(r"call_[0-9A-Za-z]{24}|[0-9A-Za-z]{9}|functions\..*", made.pop("id"))
    assert message == wanted and finish == answer["finish_reason"]
    return wanted, finish


def test_l101_calls_and_text_before(hermes):
    answer = whole(hermes, "C")["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"] == "Let me look."
    [made] = answer["message"]["tool_calls"]
    assert set(made) == {"id", "type", "function"} and made["type"] == "function"
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", made["id"])
    assert made["function"]["name"] == "get_weather" and json.loads(made["function"]["arguments"]) == CITY
    several = whole(hermes, "D")["choices"][0]["message"]
    assert several["content"] is None
    assert len({one["id"] for one in several["tool_calls"]}) == 3


@pytest.mark.parametrize("ask", ["A", "C", "D"])
def test_l102_stream_equals_whole(hermes, ask):
    message, finish = same(hermes, ask)
    assert finish == ("tool_calls" if ask in "CD" else "stop")
    if ask == "A":
        assert message["content"] == HERMES["A"]


def test_l102_usage_of_a_stream(hermes):
    chunks = streamed(hermes, "C", stream_options={"include_usage": True})[2]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole(hermes, "C")["usage"]


def test_l103_indexes_and_one_call(hermes):
    message, _ = same(hermes, "D")
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["save_file", "get_weather", "now"]
    assert [json.loads(one["function"]["arguments"]) for one in message["tool_calls"]] == [FILE, CITY, {}]
    single, finish = same(hermes, "D", parallel_tool_calls=False)
    assert len(single["tool_calls"]) == 1 and finish == "tool_calls"
    hermes.wait_idle()


def test_l103_choices_do_not_mix(hermes):
    """B049: each choice has a parser of its own."""
    for choice in whole(hermes, "D", n=3, temperature=0)["choices"]:
        assert [json.loads(one["function"]["arguments"]) for one in choice["message"]["tool_calls"]] == [FILE, CITY, {}]


def validate(made):
    """The arguments of a forced call fit the schema of its tool."""
    arguments = json.loads(made["function"]["arguments"])
    schema = next(tool["function"] for tool in TOOLS if tool["function"]["name"] == made["function"]["name"]).get("parameters", {})
    assert set(schema.get("required", [])) <= set(arguments) <= set(schema.get("properties", {}))
    kinds = {"string": str, "integer": int, "array": list}
    assert all(isinstance(value, kinds[schema["properties"][key]["type"]]) for key, value in arguments.items())


def brief(dialect):
    """A bias towards the ends of strings, lists and objects: the scripted model would go on in a string for ever, and a model
    of the first dialect in its thoughts."""
    texts, special, _ = MODELS[dialect]
    scripts = script.cut(texts, special)
    ids = script.vocabulary(script.Script(scripts, special=special, vocab=768))
    marks = {'"': 100, "}": 90, "]": 90, **({script.spell(scripts["D"][0]): 95} if dialect == "hermes" else {})}
    return {str(ids[mark]): strength for mark, strength in marks.items()}


@pytest.mark.parametrize("dialect, ask", [("hermes", "A"), ("hermes", "C"), ("mistral", "C"), ("openai", "C")])
@pytest.mark.parametrize("name", ["get_weather", "save_file", "now"])
def test_l100_a_named_tool_is_called(talk, dialect, ask, name):
    choice = {"type": "function", "function": {"name": name}}
    message, finish = same(talk(dialect), ask, tool_choice=choice, max_tokens=400, logit_bias=brief(dialect))
    assert finish == "stop" and "content" not in message
    [made] = message["tool_calls"]
    assert made["function"]["name"] == name
    validate(made)


@pytest.mark.parametrize("ask", ["A", "C", "D", "W"])
def test_l100_required_calls(hermes, ask):
    """Whatever the model would rather say."""
    message, finish = same(hermes, ask, tool_choice="required", parallel_tool_calls=False, max_tokens=400, logit_bias=brief("hermes"))
    assert finish == "tool_calls" and "content" not in message
    [made] = message["tool_calls"]
    validate(made)


@pytest.mark.parametrize("ask, count", [("D", 3), ("W", 1)])
def test_l100_required_calls_may_be_several(hermes, ask, count):
    message, finish = same(hermes, ask, tool_choice="required", max_tokens=400)
    assert finish == "tool_calls" and len(message["tool_calls"]) == count
    validate(message["tool_calls"][0])


def test_l100_b073_a_forced_call_cut_off(hermes):
    answer = whole(hermes, "C", tool_choice="required", max_completion_tokens=1)["choices"][0]
    assert answer["finish_reason"] == "length" and "tool_calls" not in answer["message"]


def test_l100_a_call_is_watched_from_its_start(hermes):
    """The script's call of a tool that is not offered becomes one of a tool that is; text before is free."""
    other = [TOOLS[1], TOOLS[2]]
    message, _ = same(hermes, "C", tools=other, max_tokens=400)
    assert message["content"].startswith("Let me look.")
    assert all(made["function"]["name"] != "get_weather" for made in message.get("tool_calls", []))


def test_l100_a_schema_that_no_grammar_knows_is_no_error(hermes):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"$ref": "#/nowhere"}, "days": {"type": "integer"}}}}}]
    assert whole(hermes, "C", tools=tools)["choices"][0]["finish_reason"] == "tool_calls"
    error_of(hermes.post(CHAT, body("C", tools=tools, tool_choice="required")))


def test_m_an_object_after_reasoning(hermes):
    """A constraint holds after the reasoning, not in it."""
    answer = whole(hermes, "K", tools=None, response_format={"type": "json_object"}, max_tokens=60)["choices"][0]["message"]
    assert answer["reasoning"] == "I think\nso." and (answer["content"] or "{").startswith("{")


def test_l100_none_makes_no_calls(hermes):
    message, finish = same(hermes, "C", tool_choice="none")
    assert message["content"] == HERMES["C"] and "tool_calls" not in message and finish == "stop"
    with_tools, without = (whole(hermes, "A", tool_choice=choice)["usage"]["prompt_tokens"] for choice in ("auto", "none"))
    assert with_tools > without


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "bad name"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools[0].function.parameters"),
    ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [5]}, "tools"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"),
])
def test_l104_bad_tools(hermes, fields, param):
    assert error_of(hermes.post(CHAT, body("A", **fields)))["param"] == param


def test_l104_what_counts_as_absent(hermes):
    plain = whole(hermes, "C", tools=None)
    assert whole(hermes, "C", tools=[])["choices"] == plain["choices"]
    assert plain["choices"][0]["message"]["content"] == HERMES["C"]
    assert whole(hermes, "C", parallel_tool_calls=None, tool_choice=None)["choices"][0]["finish_reason"] == "tool_calls"


def test_l105_malformed_calls_are_content(talk):
    anything = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    message = same(talk("granite"), "C", tools=anything)[0]
    assert message["content"] == "Well" and json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": 1}
    message, finish = same(talk("granite"), "M")
    assert message["content"] == GRANITE["M"] and "tool_calls" not in message and finish == "stop"


def test_l101_a_grammar_watches_calls_without_being_asked(talk):
    """The tool takes nothing, so that what the model would say of "x" cannot be said."""
    call = same(talk("granite"), "C", max_tokens=200)[0]["tool_calls"][0]["function"]
    assert call["name"] == "now" and json.loads(call["arguments"]) == {}


def test_l105_cut_off_calls_are_content(hermes):
    answer = whole(hermes, "C", max_completion_tokens=20)["choices"][0]
    assert answer["finish_reason"] == "length" and "tool_calls" not in answer["message"]
    assert HERMES["C"].startswith(answer["message"]["content"])


@pytest.mark.parametrize("arguments", ['{"city": ', "", "[1]", '{"city": "x"}', "null"])
def test_l106_history_with_any_arguments(hermes, arguments):
    history = [{"role": "user", "content": "a"},
               {"role": "assistant", "content": None, "tool_calls": [
                   {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]},
               {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "5 degrees"}]}]
    assert whole(hermes, "A", messages=history)["choices"][0]["message"]["content"] == HERMES["A"]
    del history[1]["content"]
    assert hermes.post(CHAT, body("A", messages=history))[0] == 200


def test_l106_history_renders_as_the_model_wrote_it(hermes):
    made = whole(hermes, "C")["choices"][0]["message"]
    history = [{"role": "user", "content": "a"}, made,
               {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "5"}]
    tokens = json.loads(hermes.post("/tokenize", {"messages": history, "tools": TOOLS})[2])["tokens"]
    prompt = json.loads(hermes.post("/detokenize", {"tokens": tokens})[2])["prompt"]
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 😀", "days": 3}}\n</tool_call>' in prompt
    assert '"name": "save_file"' in prompt and "5<|im_end|>" in prompt


def test_l_functions_of_old(hermes):
    functions = [tool["function"] for tool in TOOLS]
    message, finish = same(hermes, "D", tools=None, functions=functions)
    assert finish == "function_call" and "tool_calls" not in message
    assert message["function_call"]["name"] == "save_file" and json.loads(message["function_call"]["arguments"]) == FILE
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "function_call": message["function_call"]},
               {"role": "function", "name": "save_file", "content": "saved"}]
    assert whole(hermes, "A", tools=None, functions=functions, messages=history)["choices"][0]["finish_reason"] == "stop"
    assert whole(hermes, "C", tools=None, functions=functions, function_call="none")["choices"][0]["finish_reason"] == "stop"


def test_l_other_dialects(talk):
    message, finish = same(talk("mistral"), "C")
    assert (message["content"], finish) == ("Sure.", "tool_calls")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Bern", "days": 1}
    made = whole(talk("mistral"), "C")["choices"][0]["message"]["tool_calls"][0]
    assert re.fullmatch("[0-9A-Za-z]{9}", made["id"])
    message, finish = same(talk("openai"), "C")
    assert finish == "tool_calls" and json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] == "Bern"


def test_l_the_official_client(hermes):
    client = hermes.client(max_retries=0, _strict_response_validation=True)
    asked = {"model": client.models.list().data[0].id, "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS,
             "temperature": 0, "extra_body": {"chat_template_kwargs": {"ask": "D"}}}
    answer = client.chat.completions.create(**asked).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert [json.loads(one.function.arguments) for one in answer.message.tool_calls] == [FILE, CITY, {}]
    with hermes.client(max_retries=0).chat.completions.stream(**asked) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [event.name for event in done] == ["save_file", "get_weather", "now"]
    assert [one.function.name for one in final.message.tool_calls] == ["save_file", "get_weather", "now"]
    assert [json.loads(one.function.arguments) for one in final.message.tool_calls] == [FILE, CITY, {}]


@pytest.mark.parametrize("flag, names", [("both", {"reasoning", "reasoning_content"}), ("reasoning", {"reasoning"}),
                                         ("reasoning_content", {"reasoning_content"})])
def test_m107_reasoning(tmp_path, hermes, flag, names):
    server = hermes
    if flag != "both":
        said = script.Script(script.cut(HERMES), TEMPLATE.replace("WRITES", WRITES["hermes"]).replace("REASONS", REASONS),
                             vocab=768, context=8192)
        server = Running(script.write(tmp_path, said), "--reasoning-field", flag)
    for fields in ({}, {"tools": None}):
        message, finish = same(server, "K", **fields)
        assert {key: message.get(key) for key in names} == dict.fromkeys(names, "I think\nso.")
        assert message["content"] == "Yes, so." and finish == "stop"
        assert set(message) == {"role", "content", *names}
        unfinished = whole(server, "U", **fields)["choices"][0]
        assert unfinished["message"]["content"] is None and unfinished["message"][min(names)] == "never ready"
    if server is not hermes:
        assert server.stop() == 0


def test_m107_reasoning_that_the_prompt_opened(hermes):
    message, _ = same(hermes, "", chat_template_kwargs={"open_think": True})
    assert (message["reasoning"], message["content"]) == ("It was open.", "Now said.")
    typed, _ = same(hermes, "<think>\n")  # no template's words: it opens nothing
    assert "reasoning" not in typed and typed["content"] == HERMES["\n"]


def test_m107_reasoning_in_channels(talk):
    message, finish = same(talk("openai"), "K", tools=None)
    assert (message["reasoning"], message["content"], finish) == ("Hm, so.", "It is so.", "stop")


def test_m107_reasoning_before_a_call(hermes):
    message, finish = same(hermes, "W")
    assert message["reasoning"] == "Ask it." and "content" not in message and finish == "tool_calls"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == CITY


def test_m108_reasoning_is_hidden_and_counted(hermes):
    hidden, _ = same(hermes, "K", include_reasoning=False)
    assert set(hidden) == {"role", "content"} and hidden["content"] == "Yes, so."
    usage = whole(hermes, "K")["usage"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    assert whole(hermes, "A")["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    off = whole(hermes, "A", chat_template_kwargs={"enable_thinking": False})
    assert off["choices"][0]["message"]["content"] == HERMES["A"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_m109_history_with_reasoning(hermes, name):
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", name: "because"},
               {"role": "user", "content": "c"}]
    assert whole(hermes, "A", messages=history)["choices"][0]["message"]["content"] == HERMES["A"]


def test_l_the_format_is_printed_and_can_be_named(model, talk):
    assert any("tool calls: hermes (from the chat template); reasoning: <think> ... </think>" in line
               for line in talk("hermes").printed)
    wrong = subprocess.run([QUERN, "serve", str(model), "--port", "0", "--tool-call-parser", "x"], capture_output=True, text=True,
                           timeout=60)
    assert wrong.returncode != 0 and "qwen3_coder" in wrong.stderr
    named = Running(model, "--tool-call-parser", "qwen3_xml", "--reasoning-parser", "deepseek_r1", "--enable-auto-tool-choice")
    assert any("tool calls: qwen3_coder; reasoning: <think> ... </think>" in line for line in named.printed)
    assert named.stop() == 0
