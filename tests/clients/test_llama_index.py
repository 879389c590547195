"""LlamaIndex's OpenAILike: the class it has for servers like this one."""
import asyncio

import pydantic
import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

PARIS = "The capital of France is Paris."


class City(pydantic.BaseModel):
    """A city."""
    name: str = pydantic.Field(max_length=8)
    large: bool


def get_weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"warm in {city} for {days} days"


@pytest.fixture
def model(server):
    return OpenAILike(model="scripted", api_base=server.url + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True,
                      context_window=2048, max_tokens=400, temperature=0, max_retries=0, timeout=60)


def test_136_llama_index_answers(server, model):
    assert model.chat([ChatMessage(role="user", content="A")]).message.content == PARIS
    assert asyncio.run(model.achat([ChatMessage(role="user", content="A")])).message.content == PARIS
    assert model.complete("A").text == PARIS
    plain = OpenAILike(model="scripted", api_base=server.url + "/v1", api_key="none", is_chat_model=False, temperature=0)
    assert plain.complete("A").text == PARIS


def test_136_llama_index_streams(model):
    pieces = [piece.delta or "" for piece in model.stream_chat([ChatMessage(role="user", content="A")])]
    assert "".join(pieces) == PARIS and len(pieces) > 5
    assert list(model.stream_complete("A"))[-1].text == PARIS


def test_136_llama_index_tools(model):
    tools = [FunctionTool.from_defaults(get_weather)]
    answer = model.chat_with_tools(tools, user_msg="C")
    (call,) = model.get_tool_calls_from_response(answer)
    assert call.tool_name == "get_weather" and call.tool_kwargs == {"city": "Zürich", "days": 3}
    *_, last = model.stream_chat_with_tools(tools, user_msg="C")
    assert [one.tool_kwargs for one in model.get_tool_calls_from_response(last)] == [call.tool_kwargs]


def test_136_llama_index_structured_output(model):
    city = model.structured_predict(City, PromptTemplate("Name a city: A"))
    assert isinstance(city, City)
