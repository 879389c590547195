"""Checks 112 to 115 and 117a: the Responses API through its real client, with the scripted models of test_tools, and
against a schema of its objects and events."""
import asyncio
import json

import openai
import pydantic
import pytest

from conftest import error_of
from responses_schema import EVENTS, RESPONSE
from test_tools import CITY, FILE, HERMES, TOOLS, talk  # noqa: F401

RESPONSES = "/v1/responses"
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]


@pytest.fixture(scope="module")
def hermes(talk):  # noqa: F811
    return talk("hermes")


@pytest.fixture(scope="module")
def client(hermes):
    return openai.OpenAI(base_url=hermes.url + "/v1", api_key="none", max_retries=0, timeout=60,
                         _strict_response_validation=True)


def asked(ask, **fields):
    """The letter that the scripted model goes by ends the prompt as the start of the assistant's message would."""
    return {"model": "hermes", "input": "hi", "temperature": 0,
            "extra_body": {"chat_template_kwargs": {"ask": ask}}, **fields}


def body(ask, **fields):
    fields = asked(ask, **fields)
    return {**fields, **fields.pop("extra_body")}


def events_of(server, ask, **fields):
    """The events of a stream, each checked; the end mark is there."""
    return checked_events(server.post(RESPONSES, body(ask, stream=True, **fields)))


def checked_events(answer):
    status, headers, text = answer
    assert status == 200, text
    assert headers["content-type"].startswith("text/event-stream")
    blocks = text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    events = []
    for block in blocks[:-2]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + events[-1]["type"]
        EVENTS[events[-1]["type"]].validate(events[-1])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def comparable(response):
    """Without what differs between two answers to one request."""
    response = {**response, "id": "", "created_at": 0, "completed_at": 0, "usage": {**response["usage"],
                                                                                    "input_tokens_details": 0}}
    response["output"] = [{key: value for key, value in item.items() if key not in ("id", "call_id")}
                          for item in response["output"]]
    return response


def test_r112_text(client, hermes):
    response = client.responses.create(**asked("A", instructions="Be brief.", metadata={"k": "v"}, user="u"))
    assert response.output_text == HERMES["A"] and response.status == "completed"
    assert [(item.type, item.role, item.status) for item in response.output] == [("message", "assistant", "completed")]
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    assert response.metadata == {"k": "v"} and response.instructions == "Be brief."
    cut = client.responses.create(**asked("A", max_output_tokens=2))
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"
    assert cut.output[-1].status == "incomplete" and cut.usage.output_tokens == 2


@pytest.mark.parametrize("ask, fields", [
    ("A", {}), ("A", {"max_output_tokens": 3}), ("K", {}), ("U", {}), ("D", {"tools": FLAT_TOOLS}),
    ("C", {"tools": FLAT_TOOLS}), ("W", {"tools": FLAT_TOOLS}), ("A", {"include": ["message.output_text.logprobs"],
                                                                     "top_logprobs": 2})])
def test_r113_r117a_objects_and_events(hermes, ask, fields):
    status, _, text = hermes.post(RESPONSES, body(ask, **fields))
    assert status == 200, text
    whole = json.loads(text)
    RESPONSE.validate(whole)
    events = events_of(hermes, ask, **fields)
    types = [event["type"] for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == ("response.incomplete" if whole["status"] == "incomplete" else "response.completed")
    assert comparable(events[-1]["response"]) == comparable(whole)
    check_brackets(events)
    status, _, text = hermes.get(f"{RESPONSES}/{events[-1]['response']['id']}")
    assert (status, json.loads(text)) == (200, events[-1]["response"])


def check_brackets(events):
    """Each item is added, filled and done before the next one; deltas join to what is said at its end."""
    open_item, text, output = None, "", []
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_item is None and event["output_index"] == len(output)
            open_item, text = event["item"]["id"], ""
            assert event["item"]["status"] == "in_progress"
        elif kind == "output_item.done":
            assert event["item"]["id"] == open_item
            output.append(event["item"])
            open_item = None
        else:
            assert event["item_id"] == open_item and event["output_index"] == len(output)
            text += event.get("delta", "")
            if kind in ("output_text.done", "reasoning_text.done"):
                assert event["text"] == text
            if kind == "function_call_arguments.done":
                assert event["arguments"] == text
    assert open_item is None and output == events[-1]["response"]["output"]
    assert all(item["status"] == "completed" for item in output[:-1])


def test_r113_stream_of_the_client(client):
    with client.responses.stream(**asked("D", tools=FLAT_TOOLS)) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[0] == "response.created" and types[-1] == "response.completed"
    assert [item.name for item in final.output] == ["save_file", "get_weather", "now"]
    assert [json.loads(item.arguments) for item in final.output] == [FILE, CITY, {}]
    text = "".join(event.delta for event in client.responses.create(**asked("A", stream=True))
                   if event.type == "response.output_text.delta")
    assert text == HERMES["A"]


def test_r113_async(hermes):
    async def run():
        async with openai.AsyncOpenAI(base_url=hermes.url + "/v1", api_key="none", max_retries=0) as client:
            whole = await client.responses.create(**asked("K"))
            async with client.responses.stream(**asked("K")) as stream:
                async for _ in stream:
                    pass
                return whole, await stream.get_final_response()
    whole, streamed = asyncio.run(run())
    assert whole.output_text == streamed.output_text == "Yes, so."
    assert whole.output[0].type == "reasoning" and whole.output[0].content[0].text == "I think\nso."
    assert whole.usage.output_tokens_details.reasoning_tokens > 0


def test_r114_calls_and_their_results(client):
    first = client.responses.create(**asked("W", tools=FLAT_TOOLS))
    call = first.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", CITY)
    for output in ("5 degrees", [{"type": "input_text", "text": "5 degrees"}]):
        result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        stateless = [{"role": "user", "content": "hi"},
                     *(item.model_dump(exclude_none=True) for item in first.output), result]
        again = client.responses.create(**asked("A", tools=FLAT_TOOLS, input=stateless, store=False))
        chained = client.responses.create(**asked("A", tools=FLAT_TOOLS, input=[result], previous_response_id=first.id))
        assert again.output_text == chained.output_text == HERMES["A"]
        assert again.usage.input_tokens == chained.usage.input_tokens


def test_r114_tools_of_other_kinds(client, hermes):
    """Codex offers such tools with its own: they are passed over, and the answer says so."""
    others = [{"type": "custom", "name": "apply_patch", "description": "d",
               "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
              {"type": "web_search", "external_web_access": False}, {"type": "namespace", "name": "n", "tools": []}]
    status, headers, text = hermes.post(RESPONSES, body("W", tools=others + FLAT_TOOLS))
    assert status == 200, text
    assert json.loads(text)["output"][-1]["name"] == "get_weather" and len(json.loads(text)["tools"]) == len(TOOLS)
    assert "tools[1].type=web_search" in headers["x-unknown-fields"]
    plain = client.responses.create(**asked("A", tools=others[1:2]))
    assert plain.output_text == HERMES["A"] and plain.tools == []
    error = error_of(hermes.post(RESPONSES, body("A", tools=others, tool_choice={"type": "web_search"})))
    assert (error["param"], error["code"]) == ("tool_choice.type", "unsupported_parameter")


def test_r114_choices(client):
    none = client.responses.create(**asked("C", tools=FLAT_TOOLS, tool_choice="none"))
    assert [item.type for item in none.output] == ["message"]
    one = client.responses.create(**asked("D", tools=FLAT_TOOLS, parallel_tool_calls=False))
    assert [item.name for item in one.output] == ["save_file"]
    for choice in ({"type": "function", "name": "get_weather"}, "required",
                   {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}):
        forced = client.responses.create(**asked("W", tools=FLAT_TOOLS, tool_choice=choice))
        assert [item.type for item in forced.output] == ["reasoning", "function_call"]
        assert (forced.output[1].name, json.loads(forced.output[1].arguments)) == ("get_weather", CITY)
        unwilling = client.responses.create(**asked("A", tools=FLAT_TOOLS, tool_choice=choice, max_output_tokens=50))
        assert all(item.type != "message" for item in unwilling.output)


def test_r115_previous_responses(client, hermes):
    first = client.responses.create(**asked("A", instructions="Only here."))
    second = client.responses.create(**asked("A", input="And now?", previous_response_id=first.id))
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens - len("Only here.")
    items = client.responses.input_items.list(second.id, order="asc")
    assert [item.content[0].text for item in items] == ["hi", HERMES["A"], "And now?"]
    assert client.responses.retrieve(first.id).output_text == HERMES["A"]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    error = error_of(hermes.post(RESPONSES, body("A", previous_response_id=first.id)))
    assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(second.id)
    unstored = client.responses.create(**asked("A", store=False))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


def test_r112_counted_tokens(client):
    fields = {"instructions": "Be brief.", "tools": FLAT_TOOLS, "input": [{"role": "user", "content": "hello"}]}
    counted = client.responses.input_tokens.count(model="hermes", extra_body={"chat_template_kwargs": {"ask": "A"}}, **fields)
    assert counted.input_tokens == client.responses.create(**asked("A", **fields)).usage.input_tokens


class Verdict(pydantic.BaseModel):
    right: bool
    left: bool | None


def test_r112_parse(server):
    """The grammar makes the scripted model, which wants to say something else, fill in the form."""
    client = server.client(max_retries=0)
    parsed = client.responses.parse(**asked("A", model="alias", text_format=Verdict))
    assert parsed.status == "completed" and isinstance(parsed.output_parsed, Verdict)
    assert (parsed.text.format.type, parsed.text.format.name, parsed.text.format.strict) == ("json_schema", "Verdict", True)
    any_object = client.responses.create(**asked("A", model="alias", text={"format": {"type": "json_object"}}))
    assert any_object.output_text.startswith("{")


def test_r112_refusals(hermes):
    for fields, param in (({"truncation": "auto"}, "truncation"), ({"background": True}, "background"),
                          ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt"),
                          ({"include": ["code_interpreter_call.outputs"]}, "include"),
                          ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
                          ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
                          ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
                           "input[0].content[0].type")):
        error = error_of(hermes.post(RESPONSES, body("A", **fields)), code="unsupported_parameter")
        assert error["param"] == param
    for absent in ("instructions", "tools", "tool_choice", "text", "reasoning", "metadata", "previous_response_id",
                   "max_output_tokens", "top_p", "stream", "store", "include", "truncation", "parallel_tool_calls"):
        status, _, text = hermes.post(RESPONSES, body("A", **{absent: None}))
        assert status == 200, (absent, text)
