"""Checks 116 and 117: Anthropic's Messages API through its real client, with the scripted models of test_tools."""
import json

import anthropic
import pytest

from test_tools import CITY, FILE, HERMES, TOOLS, talk  # noqa: F401

MESSAGES = "/v1/messages"
MESSAGE_TOOLS = [{"name": tool["function"]["name"], "description": tool["function"].get("description", ""),
                  "input_schema": tool["function"].get("parameters", {"type": "object"})} for tool in TOOLS]


@pytest.fixture(scope="module")
def hermes(talk):  # noqa: F811
    return talk("hermes")


@pytest.fixture(scope="module")
def client(hermes):
    return anthropic.Anthropic(base_url=hermes.url, api_key="none", max_retries=0, timeout=60)


def asked(client, ask, **fields):
    """The letter that the scripted model goes by ends the prompt as the start of the assistant's message would."""
    model = fields.pop("model", "hermes")
    template = {"ask": ask}
    return {"model": model, "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}],
            "extra_body": {"temperature": 0, "chat_template_kwargs": template}, **fields}


def test_p116_text(client, hermes):
    message = client.messages.create(**asked(client, "A"))
    assert message.id.startswith("msg_") and message.type == "message" and message.role == "assistant"
    assert [(block.type, block.text) for block in message.content] == [("text", HERMES["A"])]
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.usage.output_tokens > 0
    short = client.messages.create(**{**asked(client, "A"), "max_tokens": 2})
    assert short.stop_reason == "max_tokens"
    cut = client.messages.create(**asked(client, "A", stop_sequences=["plain"]))
    assert (cut.stop_reason, cut.stop_sequence, cut.content[0].text) == ("stop_sequence", "plain", "The answer, ")


def test_p116_errors(client, hermes):
    body = {"model": "hermes", "messages": [{"role": "user", "content": "hi"}]}
    for more in ({}, {"max_tokens": 0}, {"max_tokens": 5, "messages": []}, {"max_tokens": 5, "temperature": 9}):
        status, _, text = hermes.post(MESSAGES + "?beta=true", {**body, **more})
        error = json.loads(text)
        assert status == 400 and error["type"] == "error" and error["error"]["type"] == "invalid_request_error", text
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**asked(client, "A", model="other"))
    assert hermes.post(MESSAGES + "?beta=true", {**body, "max_tokens": 5}, x_api_key="k", anthropic_beta="x")[0] == 200


def test_p117_stream(client, hermes):
    with client.messages.stream(**asked(client, "D", tools=MESSAGE_TOOLS)) as stream:
        types = [event.type for event in stream if event.type not in ("input_json", "text", "thinking", "signature")]
        final = stream.get_final_message()
    assert types[0] == "message_start" and types[-2:] == ["message_delta", "message_stop"]
    assert types.count("content_block_start") == types.count("content_block_stop") == 3
    assert [block.type for block in final.content] == ["tool_use"] * 3
    assert [block.name for block in final.content] == ["save_file", "get_weather", "now"]
    assert [block.input for block in final.content] == [FILE, CITY, {}]
    assert final.stop_reason == "tool_use"
    whole = client.messages.create(**asked(client, "D", tools=MESSAGE_TOOLS))
    assert [block.input for block in whole.content] == [FILE, CITY, {}]
    assert all(block.id.startswith("toolu_") for block in whole.content)
    assert whole.usage.output_tokens == final.usage.output_tokens


def test_p117_events_have_names(hermes):
    body = {"model": "hermes", "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}], "stream": True,
            "chat_template_kwargs": {"ask": "K"}}
    status, headers, text = hermes.post(MESSAGES, body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in text.split("\n\n") if event]
    for name, data in events:
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
    assert events[-1][0] == "event: message_stop"


def test_p117_thinking(client):
    for thinking in ({}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
        message = client.messages.create(**asked(client, "K", **thinking))
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "I think\nso." and message.content[1].text == "Yes, so."


def test_p117_history_and_count(client, hermes):
    history = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
               {"role": "assistant", "content": [
                   {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Wait."},
                   {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": CITY}]},
               {"role": "user", "content": [
                   {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "5"}]},
                   {"type": "text", "text": "And now?"}]}]
    fields = {"messages": history, "system": [{"type": "text", "text": "Be brief."}], "tools": MESSAGE_TOOLS}
    message = client.messages.create(**asked(client, "A", **fields))
    assert message.content[0].text == HERMES["A"]
    counted = client.messages.count_tokens(model="hermes", extra_body={"chat_template_kwargs": {"ask": "A"}}, **fields)
    assert counted.input_tokens == message.usage.input_tokens


def test_p117_tool_choice(client):
    none = client.messages.create(**asked(client, "C", tools=MESSAGE_TOOLS, tool_choice={"type": "none"}))
    assert [block.type for block in none.content] == ["text"] and none.stop_reason == "end_turn"
    one = client.messages.create(**asked(client, "D", tools=MESSAGE_TOOLS,
                                         tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
    assert [block.name for block in one.content] == ["save_file"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_p117_forced_tools(client, choice):
    """A call is made as the model writes it, and one is made though it would rather not: whole, and in pieces that join to JSON."""
    asked_for = asked(client, "W", tools=MESSAGE_TOOLS, tool_choice=choice)
    whole = client.messages.create(**asked_for)
    pieces = []
    with client.messages.stream(**asked_for) as stream:
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces.append(event.delta.partial_json)
        streamed = stream.get_final_message()
    for message in whole, streamed:
        assert [block.type for block in message.content] == ["thinking", "tool_use"] and message.stop_reason == "tool_use"
        assert (message.content[1].name, message.content[1].input) == ("get_weather", CITY)
    assert len(pieces) > 1 and json.loads("".join(pieces)) == CITY
    unwilling = client.messages.create(**{**asked(client, "A", tools=MESSAGE_TOOLS, tool_choice=choice), "max_tokens": 60})
    assert all(block.type != "text" for block in unwilling.content)


def test_p117_a_forced_tool_must_be_there(client):
    for choice in ({"type": "tool", "name": "nothing"}, {"type": "tool"}, {"type": "some"}):
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**asked(client, "W", tools=MESSAGE_TOOLS, tool_choice=choice))
