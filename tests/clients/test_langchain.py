"""langchain-openai as its users write it."""
import asyncio

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PARIS = "The capital of France is Paris."


@tool
def get_weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"warm in {city} for {days} days"


class City(pydantic.BaseModel):
    """A city."""
    name: str = pydantic.Field(max_length=8)
    large: bool
    river: str | None = pydantic.Field(max_length=8)


@pytest.fixture
def model(server):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="scripted", temperature=0, max_retries=0, timeout=60)


def test_136_langchain_answers(model):
    answer = model.invoke([SystemMessage("Be brief."), HumanMessage("A")])
    assert answer.content == PARIS
    assert answer.response_metadata["finish_reason"] == "stop" and answer.response_metadata["model_name"] == "scripted"
    used = answer.usage_metadata
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"] > 10
    assert [one.content for one in model.batch(["A", "T"])] == [PARIS, "It will be warm."]


def test_136_langchain_streams(model):
    chunks = list(model.stream("A", stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == PARIS and len(chunks) > 5
    total = sum(chunks[1:], chunks[0])
    assert total.usage_metadata["output_tokens"] > 5 and total.response_metadata["finish_reason"] == "stop"


def test_136_langchain_async(model):
    async def both():
        return (await model.ainvoke("A")).content, "".join([chunk.content async for chunk in model.astream("A")])
    assert asyncio.run(both()) == (PARIS, PARIS)


def test_136_langchain_tools(model):
    tools = model.bind_tools([get_weather])
    answer = tools.invoke("C")
    assert answer.content == "Let me look." and answer.response_metadata["finish_reason"] == "tool_calls"
    (call,) = answer.tool_calls
    assert call["name"] == "get_weather" and call["args"] == {"city": "Zürich", "days": 3} and not answer.invalid_tool_calls
    chunks = list(tools.stream("C"))
    total = sum(chunks[1:], chunks[0])
    assert [(one["name"], one["args"]) for one in total.tool_calls] == [(call["name"], call["args"])]
    history = [HumanMessage("C"), AIMessage(answer.content, tool_calls=answer.tool_calls),
               ToolMessage(get_weather.invoke(call["args"]) + " T", tool_call_id=call["id"])]
    assert tools.invoke(history).content == "It will be warm."
    forced = model.bind_tools([get_weather], tool_choice="get_weather").bind(max_tokens=400).invoke("A")
    assert forced.tool_calls or forced.invalid_tool_calls, "the named tool is called whatever the model wants to say"


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_136_langchain_structured_output(model, method):
    model = model.model_copy(update={"temperature": 1.0, "seed": 3, "max_tokens": 400})
    city = model.with_structured_output(City, method=method).invoke("A")
    assert isinstance(city, City)


def test_136_langchain_errors(server, model):
    from openai import BadRequestError, NotFoundError
    with pytest.raises(NotFoundError, match="nobody"):
        model.model_copy(update={"model_name": "nobody"}).invoke("A")
    with pytest.raises(BadRequestError, match="maximum context length is 2048 tokens"):
        model.invoke("long " * 2000)


def test_136_langchain_embeddings(embedder, vectors):
    client = OpenAIEmbeddings(base_url=embedder.url + "/v1", api_key="none", model="embedder", check_embedding_ctx_length=False)
    texts = ["Hello world", "The cat sits on the mat"]
    expected = vectors(embedder, texts)
    for vector, wanted in zip(client.embed_documents(texts), expected, strict=True):
        assert vector == pytest.approx(wanted, abs=1e-6)
    assert client.embed_query(texts[0]) == pytest.approx(expected[0], abs=1e-6)
