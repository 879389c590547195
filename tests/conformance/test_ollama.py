"""Ollama's API through its real client (checks 119 and 136), and by hand where the client hides the wire."""
import asyncio
import datetime
import json
import pathlib
import sys
from typing import Literal

import ollama
import pydantic
import pytest

import make_scripted_model as script
from conftest import Running, servers
from test_tools import CITY, REASONS, TEMPLATE, TOOLS, WRITES, call

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
from hub_server import Hub, Repository  # noqa: E402

POOLING = pathlib.Path(__file__).parents[1] / "pooling"
CALL = "<think>Ask it.</think>Let me see." + call("get_weather", CITY)
GREEDY = {"temperature": 0}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A model that thinks and then calls a tool, whatever it is asked."""
    said = script.Script(script.cut({"\n": CALL}), TEMPLATE.replace("WRITES", WRITES["hermes"]).replace("REASONS", REASONS),
                         vocab=768, context=8192)
    with servers() as of:
        yield ollama.Client(host=of(script.write(tmp_path_factory.mktemp("ollama") / "caller", said)).url)


@pytest.fixture(scope="module")
def embedder():
    with servers() as of:
        yield of(POOLING / "qwen3_embedding", "--max-model-len", 120, "--served-model-name", "embedder")


def lines(server, path, body):
    status, headers, text = server.post(path, body)
    assert status == 200, text
    assert headers["content-type"] == "application/x-ndjson" and text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_p119_generate_says_what_completions_say(client, server):
    answer = client.generate("alias", "A", raw=True, options=GREEDY)
    assert answer.response == server.text("A")
    assert answer.done and answer.done_reason == "stop" and answer.context is None
    usage = server.complete("A")["usage"]
    assert (answer.prompt_eval_count, answer.eval_count) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration > 0
    parts = list(client.generate("alias", "A", raw=True, options=GREEDY, stream=True))
    assert "".join(part.response for part in parts) == answer.response
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert datetime.datetime.fromisoformat(parts[0].created_at).tzinfo is not None


def test_p119_generate_with_the_template_and_a_context(client, server):
    first = client.generate("alias", "hi", system="Be brief.", options=GREEDY)
    chat = server.chat(messages=[{"role": "system", "content": "Be brief."}, *HI])
    assert first.response == chat["choices"][0]["message"]["content"]
    assert first.prompt_eval_count == chat["usage"]["prompt_tokens"]
    assert len(first.context) == first.prompt_eval_count + first.eval_count
    second = client.generate("alias", "and?", context=first.context, options=GREEDY)
    assert second.context[:len(first.context)] == first.context
    assert second.prompt_eval_count > len(first.context)


def test_generate_limits(client):
    def generate(**options):
        return client.generate("alias", "L", raw=True, options={**GREEDY, **options})
    assert (generate(num_predict=3).response, generate(num_predict=3).done_reason) == (" la la la", "length")
    assert generate(num_predict=0).response == ""
    stopped = client.generate("alias", "S", raw=True, options={**GREEDY, "stop": ["x", "y", "z", "v", "STOP"]})
    assert stopped.response == "alpha " and stopped.done_reason == "stop"
    assert generate(num_predict=-1).eval_count > 200  # to the end of the context


def test_generate_fills_in(client):
    assert client.generate("alias", "A", suffix="hello", options=GREEDY).response == "filled in"


def test_generate_logprobs(client, server):
    answer = client.generate("alias", "A", raw=True, options=GREEDY, logprobs=True, top_logprobs=2)
    theirs = server.complete("A", logprobs=2)["choices"][0]["logprobs"]
    assert [entry.logprob for entry in answer.logprobs] == pytest.approx(theirs["token_logprobs"], abs=1e-5)
    assert all(len(entry.top_logprobs) == 2 for entry in answer.logprobs)


def test_load_and_unload(client):
    assert client.generate("alias").done_reason == "load"
    assert client.chat("alias", []).done_reason == "load"
    assert client.generate("alias", keep_alive="5m").done


def test_p119_chat_says_what_openai_says(client, server):
    answer = client.chat("alias", HI, options=GREEDY)
    assert answer.message.role == "assistant"
    assert answer.message.content == server.chat()["choices"][0]["message"]["content"]
    parts = list(client.chat("alias", HI, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == answer.message.content
    assert parts[-1].done and parts[-1].done_reason == "stop" and parts[-1].eval_count == answer.eval_count


def test_names_have_a_tag(client):
    assert client.chat("alias:latest", HI, options=GREEDY).model == "alias:latest"
    assert client.chat("ORG/Scripted", HI, options=GREEDY).message.content


def test_chat_tools(caller):
    def get_weather(city: str, days: int) -> str:
        """Weather of a city.

        Args:
            city: where
            days: how many
        """
        return f"{city} {days}"
    for tools in (TOOLS, [get_weather]):
        answer = caller.chat("caller", HI, tools=tools, options=GREEDY)
        assert answer.message.thinking == "Ask it." and answer.message.content == "Let me see."
        assert [(one.function.name, one.function.arguments) for one in answer.message.tool_calls] == [("get_weather", CITY)]
    parts = list(caller.chat("caller", HI, tools=TOOLS, options=GREEDY, stream=True))
    assert "".join(part.message.thinking or "" for part in parts) == "Ask it."
    assert "".join(part.message.content for part in parts) == "Let me see."
    calls = [one for part in parts for one in part.message.tool_calls or []]
    assert [(one.function.name, one.function.arguments) for one in calls] == [("get_weather", CITY)]
    history = [*HI, answer.message, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
    assert caller.chat("caller", history, tools=TOOLS, options=GREEDY).prompt_eval_count > answer.prompt_eval_count


def test_chat_think(caller, client):
    thinking = caller.chat("caller", HI, think=True, options=GREEDY)
    quick = caller.chat("caller", HI, think=False, options=GREEDY)
    assert thinking.message.thinking == "Ask it."
    assert quick.prompt_eval_count > thinking.prompt_eval_count  # the template closes the reasoning
    with pytest.raises(ollama.ResponseError, match="does not support thinking"):
        client.chat("alias", HI, think=True)


class Pet(pydantic.BaseModel):
    kind: Literal["cat", "dog"]
    legs: Literal[3, 4]


def test_format(client):
    for seed in range(5):
        options = {"temperature": 1, "seed": seed}
        Pet.model_validate_json(client.chat("alias", HI, format=Pet.model_json_schema(), options=options).message.content)
        Pet.model_validate_json(client.generate("alias", "A", format=Pet.model_json_schema(), options=options).response)
    parts = client.chat("alias", HI, format=Pet.model_json_schema(), options=GREEDY, stream=True)
    Pet.model_validate_json("".join(part.message.content for part in parts))
    started = client.chat("alias", HI, format="json", options={**GREEDY, "num_predict": 4})
    assert started.message.content.lstrip().startswith("{")


def test_embed(embedder):
    client = ollama.Client(host=embedder.url)
    texts = ["Hello world", "a"]
    answer = client.embed("embedder", texts)
    theirs = json.loads(embedder.post("/v1/embeddings", {"input": texts, "normalize": True})[2])
    assert [list(vector) for vector in answer.embeddings] == [one["embedding"] for one in theirs["data"]]
    assert answer.prompt_eval_count == theirs["usage"]["prompt_tokens"] and answer.total_duration > 0
    assert client.embed("embedder:latest", "a").embeddings[0] == answer.embeddings[1]
    assert client.embed("embedder", []).embeddings == []
    assert client.embed("embedder", "word " * 500).prompt_eval_count == 120
    with pytest.raises(ollama.ResponseError, match="maximum context length"):
        client.embed("embedder", "word " * 500, truncate=False)
    old = client.embeddings("embedder", "a").embedding
    assert list(old) == pytest.approx(list(answer.embeddings[1]), abs=1e-5)
    assert client.show("embedder").capabilities == ["embedding"]
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("embedder", HI)
    assert caught.value.status_code == 400


def test_models(client):
    listed = client.list().models
    assert [model.model for model in listed] == ["org/scripted:latest", "alias:latest"]
    assert all(len(model.digest) == 64 and model.size > 0 and model.details.family == "llama" for model in listed)
    shown = client.show("alias")
    assert "<|im_start|>" in shown.template and "completion" in shown.capabilities and "insert" in shown.capabilities
    assert shown.modelinfo["general.architecture"] == "llama" and shown.modelinfo["llama.context_length"] > 0
    running = client.ps().models
    assert [model.name for model in running] == ["org/scripted:latest"] and running[0].context_length == 256
    assert running[0].expires_at > datetime.datetime.now(datetime.timezone.utc)


def test_async(server):
    async def talk():
        client = ollama.AsyncClient(host=server.url)
        whole = await client.chat("alias", HI, options=GREEDY)
        text = ""
        async for part in await client.chat("alias", HI, options=GREEDY, stream=True):
            text += part.message.content
        return whole.message.content, text, (await client.ps()).models
    whole, text, running = asyncio.run(talk())
    assert whole == text and whole and len(running) == 1


def test_errors(client, server):
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("none", HI)
    assert caught.value.status_code == 404 and caught.value.error == "model 'none' not found"
    with pytest.raises(ollama.ResponseError, match="text only"):
        client.generate("alias", "what is this?", images=["aGVsbG8="])
    with pytest.raises(ollama.ResponseError, match="maximum context length"):
        list(client.generate("alias", "word " * 5000, stream=True))
    for change in (lambda: client.pull("org/x"), lambda: client.copy("alias", "b"), lambda: client.delete("alias")):
        with pytest.raises(ollama.ResponseError, match="--allow-model-management") as caught:
            change()
        assert caught.value.status_code == 403
    for make in (lambda: client.create("m", from_="alias"), lambda: client.push("alias")):
        with pytest.raises(ollama.ResponseError, match="not supported"):
            make()
    for path, body in (("/api/chat", "{"), ("/api/nothing", {}), ("/api/chat", {"messages": []})):
        status, _, text = server.post(path, body, Content_Type="application/json")
        assert status in (400, 404) and list(json.loads(text)) == ["error"], text
        assert isinstance(json.loads(text)["error"], str)


def test_models_come_from_a_hub_and_go(model, tmp_path):
    hub = Hub()
    tiny = (pathlib.Path(__file__).parents[1] / "golden" / "llama3_rope_gguf" / "model.gguf").read_bytes()
    hub.repositories["org/tiny"] = Repository({"tiny-Q4_K_M.gguf": tiny})
    running = Running(model, "--allow-model-management", env={
        "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path), "QUERN_MODELS": str(tmp_path / "models"),
        "HF_HUB_OFFLINE": "0"})
    client = ollama.Client(host=running.url)

    def names():
        return {one.model for one in client.list().models}
    before = names()
    said = list(client.pull("org/tiny", stream=True))
    assert said[0].status == "pulling manifest" and said[-1].status == "success"
    assert max(part.completed or 0 for part in said) == len(tiny) == said[1].total
    pulled = names() - before
    assert len(pulled) == 1 and pulled.pop().startswith("org/tiny")
    assert client.pull("org/tiny").status == "success"  # nothing comes twice
    shown = client.show("org/tiny")
    assert shown.details.format == "gguf" and shown.modelinfo["general.architecture"] == "llama"
    assert client.copy("org/tiny", "mine").status == "success" and "mine:latest" in names()
    assert client.delete("mine").status == "success" and "mine:latest" not in names()
    for change in (lambda: client.delete("mine"), lambda: client.copy("none", "x"), lambda: client.show("none")):
        with pytest.raises(ollama.ResponseError, match="not found") as caught:
            change()
        assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError):
        list(client.pull("org/none", stream=True))
    with pytest.raises(ollama.ResponseError):
        client.pull("org/none")
    assert running.stop() == 0
    hub.stop()


def test_wire(server):
    """Members and their order do not matter to clients; which ones there are does."""
    body = {"model": "alias", "prompt": "A", "raw": True, "options": GREEDY}
    said = lines(server, "/api/generate", body)
    assert all(set(line) == {"model", "created_at", "response", "done"} for line in said[:-1])
    counts = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}
    assert set(said[-1]) == {"model", "created_at", "response", "done", "done_reason"} | counts
    assert all(isinstance(said[-1][name], int) for name in counts)
    said = lines(server, "/api/chat", {"model": "alias", "messages": HI, "tools": []})
    assert all(set(line["message"]) == {"role", "content"} for line in said)
    assert json.loads(server.get("/api/version")[2])["version"].count(".") == 2
    assert server.get("/", User_Agent="ollama-python/0.6.3")[2] == "Ollama is running"
    assert server.call("HEAD", "/")[0] == server.call("HEAD", "/api/version")[0] == server.call("HEAD", "/api/tags")[0] == 200


def test_keys(serve):
    with serve("--api-key", "k") as running:
        assert json.loads(running.get("/api/tags")[2])["error"]
        with pytest.raises(ollama.ResponseError) as caught:
            ollama.Client(host=running.url).list()
        assert caught.value.status_code == 401
        assert ollama.Client(host=running.url, headers={"Authorization": "Bearer k"}).list().models


def test_can_be_switched_off(serve):
    with serve("--no-ollama-api") as running:
        assert running.get("/api/version")[0] == running.get("/api/tags")[0] == 404
        assert running.post("/api/chat", {"model": "x", "messages": HI})[0] == 404
        assert running.get("/", User_Agent="ollama-python/0.6.3")[2] != "Ollama is running"
