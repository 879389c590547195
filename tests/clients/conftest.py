"""Servers of tiny models for Python clients that tests/client-requirements.txt installs beside those of tests/conformance."""
import importlib.util
import json
import pathlib

import pytest

TESTS = pathlib.Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("conformance", TESTS / "conformance" / "conftest.py")
conformance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conformance)

import make_scripted_model as script  # noqa: E402  (the path to it is conformance's)

WEATHER = {"city": "Zürich", "days": 3}
# Said when the last message of the conversation ends with the letter.
TEXTS = {
    "A": "The capital of France is Paris.",
    "C": "Let me look.\n<tool_call>\n" + json.dumps({"name": "get_weather", "arguments": WEATHER}, ensure_ascii=False) + "\n</tool_call>",
    "T": "It will be warm.",
}
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + (messages[-1].content or ' ')[-1] }}{% endif %}")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Chats, calls get_weather, and is called `scripted`."""
    said = script.Script(script.cut(TEXTS), TEMPLATE, vocab=768, context=2048)
    with conformance.servers() as of:
        yield of(script.write(tmp_path_factory.mktemp("models") / "scripted", said), "--served-model-name", "scripted")


@pytest.fixture(scope="session")
def embedder():
    """Makes vectors and is called `embedder`."""
    with conformance.servers() as of:
        yield of(TESTS / "pooling" / "bert", "--served-model-name", "embedder")


@pytest.fixture(scope="session")
def vectors():
    """vectors(server, texts) as plain HTTP gives them."""
    def ask(server, texts):
        status, _, text = server.post("/v1/embeddings", {"input": texts})
        assert status == 200, text
        return [entry["embedding"] for entry in json.loads(text)["data"]]
    return ask
