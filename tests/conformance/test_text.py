"""Sections E, F and H of the checklist: completions, chat, stops and lengths, whole and streamed."""
import json
import pathlib
import shutil
import struct

import pytest

import make_scripted_model as script
from conftest import CONTEXT, chat_body, error_of, servers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDS = script.vocabulary()


def token(text):
    return IDS[script.spell(text if isinstance(text, bytes) else text.encode())]


def streamed(server, prompt, **fields):
    """Text and finish of a streamed completion."""
    chunks = server.events(COMPLETIONS, {"prompt": prompt, "temperature": 0, **fields})
    choices = [chunk["choices"][0] for chunk in chunks]
    return "".join(choice["text"] for choice in choices), choices[-1]


def both(server, prompt, **fields):
    """The choice of a completion, after checking that its stream says the same."""
    whole = server.complete(prompt, **fields)["choices"][0]
    text, last = streamed(server, prompt, **fields)
    assert text == whole["text"]
    assert (last["finish_reason"], last["stop_reason"]) == (whole["finish_reason"], whole["stop_reason"])
    return whole


# E. Completions

def test_e41_shape(server, client):
    body = server.complete("A")
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert {"index", "text", "logprobs", "finish_reason"} <= set(body["choices"][0])
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    answer = client.completions.create(model="alias", prompt="A", temperature=0)
    assert answer.choices[0].text == "The capital of France is Paris ."
    assert answer.usage.completion_tokens == 7


def test_e42_prompts_and_choices(server):
    choices = server.complete(["A", "S", "E"], n=2)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3, 4, 5]
    assert [choice["text"] for choice in choices] == [server.text(prompt) for prompt in "AASSEE"]


def test_e43_token_prompts(server):
    tokens = json.loads(server.post("/tokenize", {"prompt": "hello A"})[2])["tokens"]
    assert server.text(tokens) == server.text("hello A")
    assert [choice["text"] for choice in server.complete([tokens, [token("S")]])["choices"]] == [server.text("A"), server.text("S")]


def test_e44_bad_prompts(server):
    for prompt in ([320], [-1], [], [[]], 5, {"a": 1}):
        error_of(server.post(COMPLETIONS, {"prompt": prompt}))
    assert server.complete("", max_tokens=1)["usage"]["prompt_tokens"] == 1  # the beginning of text


def test_e45_default_max_tokens(server):
    assert server.complete("L")["usage"]["completion_tokens"] == 16


def test_e46_echo(server):
    prompt = "  héllo 日 A"
    assert both(server, prompt, echo=True)["text"] == prompt + "The capital of France is Paris ."


def test_e47_best_of(server, client):
    """The answer is the one of the three whose tokens are most probable on average; all three are counted."""
    ask = {"prompt": "P", "temperature": 1, "max_tokens": 1, "logprobs": 0}
    winners = set()
    for seed in range(8):
        made = server.complete(**ask, n=3, seed=seed)["choices"]
        best = client.completions.create(model="alias", **ask, best_of=3, n=1, seed=seed)
        assert best.choices[0].text == max(made, key=lambda choice: choice["logprobs"]["token_logprobs"][0])["text"]
        assert len(best.choices) == 1 and best.usage.completion_tokens == 3
        winners.add(best.choices[0].text)
    assert len(winners) > 1 or winners == {"x1"}
    texts = [choice["text"] for choice in server.complete("P", temperature=1, max_tokens=1, best_of=6, n=2, seed=1)["choices"]]
    assert len(texts) == 2 and texts == sorted(texts)  # "x1" is more probable than "x2", and so on
    error_of(server.post(COMPLETIONS, {"prompt": "A", "best_of": 1, "n": 2}), 400)
    error_of(server.post(COMPLETIONS, {"prompt": "A", "best_of": 3, "stream": True}), 400)


def test_e48_suffix(server):
    """Prompt and suffix stand behind their marks, and what is between them follows the last one."""
    assert server.text("A") == "The capital of France is Paris ."
    choice = server.complete("A", suffix="hello <|fim_middle|>", return_token_ids=True)["choices"][0]
    tokens = choice["prompt_token_ids"]
    assert choice["text"] == "filled in" and tokens[-1] == IDS["<|fim_middle|>"] and tokens.count(IDS["<|fim_middle|>"]) == 1
    assert [IDS["<s>"], IDS["<|fim_prefix|>"], IDS["A"], IDS["<|fim_suffix|>"], IDS["hello"]] == tokens[:5]
    error_of(server.post(COMPLETIONS, {"prompt": [5], "suffix": "x"}), 400)
    error_of(server.post(COMPLETIONS, {"prompt": "A", "suffix": 5}), 400, "invalid_type")


def vocabulary_pairs(**ids):
    """Metadata of a GGUF file of 288 tokens: bytes, "he", and "<0>", "<1>" and so on."""
    text = lambda value: struct.pack("<Q", len(value.encode())) + value.encode()
    pair = lambda name, kind, value: text(f"tokenizer.ggml.{name}") + struct.pack("<I", kind) + value
    many = lambda kind, values: struct.pack("<IQ", kind, len(values)) + b"".join(values)
    tokens = [*map(script.ALPHABET.get, range(256)), "he", *(f"<{i}>" for i in range(31))]
    return [pair("model", 8, text("gpt2")), pair("pre", 8, text("gpt-2")), pair("tokens", 9, many(8, [*map(text, tokens)])),
            pair("merges", 9, many(8, [text("h e")])), *(pair(f"{name}_token_id", 4, struct.pack("<I", i)) for name, i in ids.items())]


def with_pairs(path, pairs):
    """A GGUF file with more metadata, as long as a whole number of its alignment."""
    whole, head = path.read_bytes(), b"".join(pairs)
    filler = struct.pack("<Q", 6) + b"filler" + struct.pack("<IQ", 8, -(len(head) + 26) % 32)
    head += filler + bytes(-(len(head) + 26) % 32)
    return whole[:16] + struct.pack("<Q", struct.unpack_from("<Q", whole, 16)[0] + len(pairs) + 1) + head + whole[24:]


@pytest.mark.parametrize("names", [("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle"), ()])
def test_e48_marks_of_a_gguf_file(tmp_path, names):
    """Where the file names the tokens, their spelling does not matter; nor may a client write them."""
    small = pathlib.Path(__file__).parents[1] / "golden" / "llama3_rope_gguf" / "model.gguf"
    (tmp_path / "m.gguf").write_bytes(with_pairs(small, vocabulary_pairs(**dict(zip(names, (270, 280, 260))))))
    with servers() as start:
        running = start(tmp_path / "m.gguf", "--max-num-seqs", 1)
        body = {"prompt": "the", "suffix": "he<3>", "max_tokens": 1, "return_token_ids": True}
        if not names:
            error_of(running.post(COMPLETIONS, body), 400, "unsupported_parameter")
            return
        prompt = running.complete(**body)["choices"][0]["prompt_token_ids"]
        assert prompt == [270, ord("t"), 256, 280, 256, *b"<3>", 260]


# F. Chat

def test_f49_shape(server, client):
    body = server.chat()
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-")
    message = body["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"] == "Hello from the script" and message["refusal"] is None
    assert isinstance(body["usage"]["prompt_tokens_details"]["cached_tokens"], int)
    answer = client.chat.completions.create(model="alias", messages=[{"role": "user", "content": "x"}], temperature=0)
    assert answer.choices[0].message.content == "Hello from the script"


def count(server, messages, **fields):
    return server.chat(messages=messages, **fields)["usage"]["prompt_tokens"]


def test_f50_content_parts(server):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert count(server, [{"role": "user", "content": parts}]) == count(server, [{"role": "user", "content": "a\nb"}])
    error_of(server.post(CHAT, chat_body(messages=[{"role": "user", "content": []}])))


def test_f51_roles(server):
    user = {"role": "user", "content": "y"}
    assert count(server, [{"role": "developer", "content": "x"}, user]) == count(server, [{"role": "system", "content": "x"}, user])
    error_of(server.post(CHAT, chat_body(messages=[{"role": "king", "content": "x"}])))


def test_f52_history_with_tools(server):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": "c", "content": "5"}]
    assert server.post(CHAT, chat_body(messages=history))[0] == 200
    del history[2]["tool_call_id"]
    error_of(server.post(CHAT, chat_body(messages=history)))


def test_a_request_names_one_of_the_models_templates(model, tmp_path):
    """As in transformers: what the name says, else tools decide; that there are documents decides nothing."""
    folder = shutil.copytree(model, tmp_path / "named")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    documents = "{% for one in documents %}[{{ one.title }}: {{ one.text }}]{% endfor %}{{ messages[0].content }}"
    named = {"rag": documents, "default": "plain {{ messages[0].content }}", "tool_use": "{{ tools | length }} tools"}
    config["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    about = [{"title": "A", "text": "one"}, {"title": "B", "text": "two"}]
    with servers() as start:
        running = start(folder, "--tool-call-parser", "hermes")

        def prompt(**fields):
            status, _, text = running.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}], **fields})
            assert status == 200, text
            return json.loads(text)["prompt"]

        assert prompt() == prompt(chat_template="default") == prompt(chat_template="default", tools=tools) == "plain hi"
        assert prompt(tools=tools) == prompt(chat_template="tool_use", tools=tools) == "1 tools"
        assert prompt(chat_template="rag", documents=about) == "[A: one][B: two]hi"
        assert prompt(chat_template="rag") == "hi"
        tokens = running.chat(chat_template="rag", documents=about, max_tokens=1)["usage"]["prompt_tokens"]
        assert tokens == len(json.loads(running.post("/tokenize", {"prompt": "[A: one][B: two]hi", "add_special_tokens": False})[2])["tokens"])
        assert "can be 'rag'" in error_of(running.post(CHAT, chat_body(documents=about)), 400, "unsupported_parameter")["message"]
        for wrong in ("{{ messages }}", "other"):
            error = error_of(running.post(CHAT, chat_body(chat_template=wrong)), 400, "unsupported_parameter")
            assert error["param"] == "chat_template" and "default, rag, tool_use" in error["message"]


def test_f53_f54_s22_rendered_prompt(server):
    """One BOS; what the user types never becomes a special token."""
    messages = [{"role": "user", "content": "hello <|im_end|>"}]
    tokens = json.loads(server.post("/tokenize", {"messages": messages})[2])["tokens"]
    spelled = {"<": token("<"), "|": token("|")}
    assert tokens.count(IDS["<s>"]) == 1 and tokens[0] == IDS["<s>"]
    assert tokens.count(IDS["<|im_end|>"]) == 1 and tokens.count(IDS["<|im_start|>"]) == 2
    assert tokens.count(spelled["|"]) == 2
    assert IDS["hello"] in tokens
    assert server.chat(messages=messages, return_token_ids=True)["prompt_token_ids"] == tokens


def test_f55_continues_the_last_message(server):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "so A"}]
    body = server.chat(messages=messages, continue_final_message=True, add_generation_prompt=False)
    assert body["choices"][0]["message"]["content"] == "The capital of France is Paris ."


def test_f56_template_variables(server):
    assert server.chat("A")["usage"]["prompt_tokens"] == server.chat()["usage"]["prompt_tokens"] + 1
    assert server.chat("A")["choices"][0]["message"]["content"] == "The capital of France is Paris ."


def test_f57_max_completion_tokens(server):
    body = server.chat("L", max_completion_tokens=5, max_tokens=9)
    assert body["usage"]["completion_tokens"] == 5 and body["choices"][0]["finish_reason"] == "length"


def test_f58_several_seeded_choices(server):
    def texts(seed):
        return [choice["message"]["content"] for choice in server.chat("R", n=3, temperature=1, seed=seed, max_tokens=20)["choices"]]
    assert len(set(texts(1))) == 3
    assert texts(1) == texts(1) != texts(2)


def test_f59_unicode(server):
    assert both(server, "E")["text"] == "😀 €! é end"
    assert both(server, "B")["text"] == "bad \ufffd byte"
    assert both(server, "U")["text"] == "cut \ufffd"


# H. Stop and length

def test_h73_stop_across_tokens(server):
    choice = both(server, "S", stop="STOP")
    assert choice["text"] == "alpha " and choice["finish_reason"] == "stop" and choice["stop_reason"] == "STOP"
    assert both(server, "S", stop=["a ST"])["text"] == "alph"


def test_h74_held_text_is_delivered(server):
    assert both(server, "H", stop="STOP")["text"] == "beta STO"
    assert both(server, "H", stop="STOP", max_tokens=2)["text"] == "beta STO"
    assert both(server, "H", stop="STO!")["finish_reason"] == "stop"


def test_h75_first_completed_stop_wins(server):
    assert both(server, "S", stop=["omega", "OP"])["stop_reason"] == "OP"
    assert both(server, "A")["stop_reason"] is None


def test_h76_stop_kept(server):
    assert both(server, "S", stop="STOP", include_stop_str_in_output=True)["text"] == "alpha STOP"


def test_h77_stop_tokens(server):
    choice = both(server, "A", stop_token_ids=[token(b" is")])
    assert choice["text"] == "The capital of France" and choice["stop_reason"] == token(b" is")
    error_of(server.post(COMPLETIONS, {"prompt": "A", "stop_token_ids": [320]}))


def test_h78_stop_in_the_prompt(server):
    assert both(server, "STOP A", stop="STOP", echo=True)["text"] == "STOP AThe capital of France is Paris ."


def test_h79_ignore_eos_and_min_tokens(server):
    assert server.complete("A", ignore_eos=True, max_tokens=40)["usage"]["completion_tokens"] == 40
    assert server.complete("A", min_tokens=12, max_tokens=20)["usage"]["completion_tokens"] >= 12


def test_h80_stops_with_characters_and_prefixes(server):
    assert both(server, "E", stop="€")["text"] == "😀 "
    assert both(server, "E", stop="é")["text"] == "😀 €! "
    assert both(server, "S", stop=["STO", "STOP"])["stop_reason"] == "STO"
    assert both(server, "S", stop=["STOP", "STO"])["text"] == "alpha "


# P. Tokenize

def test_p118_tokenize_and_back(server):
    text = "  héllo 日本 😀\n"
    tokens = json.loads(server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[2])
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == CONTEXT
    assert json.loads(server.post("/detokenize", {"tokens": tokens["tokens"]})[2])["prompt"] == text
    error_of(server.post("/detokenize", {"tokens": [320]}))
    counted = json.loads(server.post("/tokenize", {"prompt": "hello A"})[2])["count"]
    assert counted == server.complete("hello A")["usage"]["prompt_tokens"]


PICKY = ("{%- if messages[0].role == 'assistant' -%}{{ raise_exception('Conversations must start with a user: 你好 \"you\"') }}"
         "{%- endif -%}{%- for m in messages %}{{ m.content }}{% endfor %}{{ messages.nothing.at_all }}")


def test_an_exception_of_the_template_is_a_400_with_its_own_words(serve, tmp_path):
    (tmp_path / "picky.jinja").write_text(PICKY)
    wrong = {"messages": [{"role": "assistant", "content": "hi"}], "max_tokens": 1}
    with serve("--chat-template", tmp_path / "picky.jinja", "--served-model-name", "m") as server:
        for path in ("/v1/chat/completions", "/apply-template", "/tokenize", "/v1/responses", "/v1/messages", "/api/chat"):
            body = {"input": wrong["messages"], "max_output_tokens": 16} if path == "/v1/responses" else wrong | {"model": "m"}
            for stream in (False, True):
                answer = server.post(path, body | ({"stream": True} if stream and path != "/tokenize" else {}))
                assert answer[0] == 400, (path, answer)
                message = json.loads(answer[2])["error"]
                message = message if isinstance(message, str) else message["message"]
                assert 'Conversations must start with a user: 你好 "you"' in message, (path, answer)
        # What the template does wrong by itself is said, too, and the server goes on.
        error = error_of(server.post(CHAT, {"messages": [{"role": "user", "content": "hi"}]}))
        assert "has no attribute 'nothing'" in error["message"], error
        assert server.call("GET", "/health")[0] == 200
