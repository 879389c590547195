"""litellm's library, as aider, the LiteLLM proxy and many agents use it."""
import asyncio
import json

import litellm
import pytest

PARIS = "The capital of France is Paris."
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}}]


@pytest.fixture(params=["hosted_vllm", "openai"])
def ask(server, request):
    """ask(text, ...) through a provider that people name for such servers."""
    def complete(text, how=litellm.completion, model="scripted", **fields):
        return how(model=f"{request.param}/{model}", api_base=server.url + "/v1", api_key="none", temperature=0, num_retries=0,
                   max_retries=0, messages=[{"role": "user", "content": text}], **fields)
    return complete


def test_136_litellm_answers(ask):
    answer = ask("A")
    assert answer.choices[0].message.content == PARIS and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert asyncio.run(ask("A", litellm.acompletion)).choices[0].message.content == PARIS


def test_136_litellm_streams(ask):
    chunks = list(ask("A", stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == PARIS and whole.usage.completion_tokens == ask("A").usage.completion_tokens


def test_136_litellm_tools(ask):
    for answer in (ask("C", tools=TOOLS), litellm.stream_chunk_builder(list(ask("C", tools=TOOLS, stream=True)))):
        assert answer.choices[0].finish_reason == "tool_calls"
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Zürich", "days": 3}


def test_136_litellm_structured_output(ask):
    schema = {"type": "object", "properties": {"large": {"type": "boolean"}}, "required": ["large"], "additionalProperties": False}
    answer = ask("A", response_format={"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}})
    assert set(json.loads(answer.choices[0].message.content)) == {"large"}


def test_136_litellm_errors(ask):
    with pytest.raises(litellm.ContextWindowExceededError):
        ask("long " * 2000)
    with pytest.raises(litellm.NotFoundError):
        ask("A", model="nobody")
    with pytest.raises(litellm.BadRequestError):
        ask("A", top_p=7)


def test_136_litellm_embeddings(embedder, vectors):
    answer = litellm.embedding(model="hosted_vllm/embedder", api_base=embedder.url + "/v1", api_key="none", input=["Hello world", "a"])
    expected = vectors(embedder, ["Hello world", "a"])
    for entry, vector in zip(answer.data, expected, strict=True):
        assert entry["embedding"] == pytest.approx(vector, abs=1e-6)
