"""Check 136 with OpenAI's own package: its asynchronous client on every route, and its retries on a server that is full.
The synchronous one is used throughout the other files."""
import asyncio
import json

import openai
import pytest

import make_scripted_model as script
from conftest import Running
from test_embeddings import TEXTS, embedder, start, vectors  # noqa: F401
from test_http import PARIS
from test_limits import LONG, opened
from test_tools import CITY, HERMES, TOOLS, hermes, talk  # noqa: F401

HI = [{"role": "user", "content": "hi"}]


def using(server, action, **options):
    """What action(client) gives with an asynchronous client."""
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", timeout=60, **options) as client:
            return await action(client)
    return asyncio.run(run())


def test_s136_async_chat(server):
    async def talk_to(client):
        asked = {"model": "alias", "messages": HI, "temperature": 0}
        whole = await client.chat.completions.create(**asked)
        chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})]
        return whole, chunks
    whole, chunks = using(server, talk_to, max_retries=0, _strict_response_validation=True)
    assert whole.choices[0].message.content == "Hello from the script" and whole.choices[0].finish_reason == "stop"
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_s136_async_stream_helper_and_tools(hermes):  # noqa: F811
    async def talk_to(client):
        asked = {"model": "hermes", "messages": HI, "tools": TOOLS, "temperature": 0, "extra_body": {"chat_template_kwargs": {"ask": "C"}}}
        async with client.chat.completions.stream(**asked) as stream:
            async for _ in stream:
                pass
            return await client.chat.completions.create(**asked), await stream.get_final_completion()
    for answer in using(hermes, talk_to, max_retries=0):
        assert answer.choices[0].finish_reason == "tool_calls"
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == "get_weather" and json.loads(call.function.arguments) == CITY


def test_s136_async_completions(server):
    async def talk_to(client):
        asked = {"model": "alias", "prompt": "A", "temperature": 0}
        whole = await client.completions.create(**asked)
        return whole, [chunk async for chunk in await client.completions.create(**asked, stream=True)]
    whole, chunks = using(server, talk_to, max_retries=0)
    assert whole.choices[0].text == PARIS == "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop" and len(chunks) > 5


def test_s136_async_responses(hermes):  # noqa: F811
    async def talk_to(client):
        asked = {"model": "hermes", "input": "hi", "temperature": 0, "extra_body": {"chat_template_kwargs": {"ask": "A"}}}
        whole = await client.responses.create(**asked)
        return whole.output_text, [event async for event in await client.responses.create(**asked, stream=True)]
    text, events = using(hermes, talk_to, max_retries=0)
    assert text == HERMES["A"] == events[-1].response.output_text and events[-1].type == "response.completed"


def test_s136_async_embeddings(embedder):  # noqa: F811
    async def talk_to(client):
        together = await client.embeddings.create(model="org/embedder", input=TEXTS)
        return together, await asyncio.gather(*(client.embeddings.create(model="org/embedder", input=text) for text in TEXTS))
    together, alone = using(embedder, talk_to, max_retries=0)
    expected = [one["embedding"] for one in vectors(embedder, TEXTS)["data"]]
    for one, other, wanted in zip(together.data, alone, expected, strict=True):
        assert one.embedding == pytest.approx(wanted, abs=1e-6) and other.data[0].embedding == pytest.approx(wanted, abs=1e-5)


def test_s136_async_many_at_once(server):
    async def talk_to(client):
        return await asyncio.gather(*(client.completions.create(model="alias", prompt="A", temperature=0) for _ in range(50)))
    assert {answer.choices[0].text for answer in using(server, talk_to, max_retries=0)} == {PARIS}


def test_s136_async_errors(server):
    async def talk_to(client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="alias", prompt="A", temperature=3)
        assert (caught.value.param, caught.value.code) == ("temperature", "decimal_above_max_value")
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="nobody", messages=HI)
    using(server, talk_to)


@pytest.fixture
def full(tmp_path):
    """A server that runs one request and lets one wait, and the two connections that keep it busy until they are closed."""
    folder = script.write(tmp_path / "full", script.Script(script.SCRIPTS, context=LONG))
    running = Running(folder, "--max-model-len", str(LONG), "--kv-cache-memory-bytes", "256m", "--max-num-seqs", "1",
                      "--max-queued-requests", "1")
    busy = []
    for name in "vllm:num_requests_running", "vllm:num_requests_waiting":
        busy.append(opened(running, {"prompt": "L", "max_tokens": LONG - 10, "ignore_eos": True}))
        while running.metric(name) == 0:
            pass
    yield running, busy
    assert running.stop() == 0


def refused(server):
    return server.metric("quern_requests_refused_total", reason="queue_full")


def test_s136_q120_a_client_tries_again(full):
    """The client meets 429, waits as it is told, asks again and has its answer, unknown to who called it."""
    server, busy = full

    async def talk_to(client):
        asked = asyncio.create_task(client.completions.create(model="full", prompt="A", temperature=0))
        while refused(server) == 0:
            await asyncio.sleep(0.01)
        assert not asked.done()
        for connection in busy:
            connection.close()
        return await asked
    assert using(server, talk_to, max_retries=2).choices[0].text == PARIS
    assert refused(server) >= 1


def test_s136_q120_a_client_gives_up(full):
    server, busy = full
    with pytest.raises(openai.RateLimitError) as caught:
        server.client(max_retries=1).completions.create(model="full", prompt="A")
    assert caught.value.code == "rate_limit_exceeded" and int(caught.value.response.headers["retry-after"]) >= 1
    assert refused(server) == 2
    for connection in busy:
        connection.close()
