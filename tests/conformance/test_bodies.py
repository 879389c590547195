"""Requests as programs send them, written down field by field: load generators, evaluation harnesses, coding agents."""
import json

import pytest

from conftest import CONTEXT, chat_body
from test_responses import checked_events
from test_tools import CITY, HERMES, hermes, talk  # noqa: F401

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

BODIES = {
    "vllm bench serve, openai": (COMPLETIONS, {
        "model": "alias", "prompt": "A", "repetition_penalty": 1.0, "max_tokens": 8, "logprobs": None, "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "ignore_eos": True}),
    "vllm bench serve, openai-chat": (CHAT, {
        "model": "alias", "messages": [{"role": "user", "content": [{"type": "text", "text": "A"}]}], "max_completion_tokens": 8,
        "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.0, "ignore_eos": True}),
    "guidellm, completions": (COMPLETIONS, {
        "model": "alias", "prompt": "A", "max_tokens": 8, "max_completion_tokens": 8, "stop": None, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    "guidellm, chat": (CHAT, {
        "model": "alias", "messages": [{"role": "user", "content": [{"type": "text", "text": "A"}]}], "max_tokens": 8,
        "max_completion_tokens": 8, "stop": None, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    "lm-evaluation-harness, scores": (COMPLETIONS, {
        "model": "alias", "prompt": [[7, 8, 9], [10, 11, 12, 13]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": True}),
    "lm-evaluation-harness, texts": (COMPLETIONS, {
        "model": "alias", "prompt": ["A"], "max_tokens": 8, "temperature": 0, "stop": ["\n\n", "</s>"], "seed": 1234}),
    "inference-perf": (COMPLETIONS, {"model": "alias", "prompt": "A", "max_tokens": 8, "ignore_eos": True, "stream": True}),
    "Continue, fill in the middle": (COMPLETIONS, {
        "model": "alias", "prompt": "A", "suffix": "B", "max_tokens": 8, "temperature": 0.01, "stop": ["\n\n"], "stream": True,
        "stream_options": {"include_usage": True}}),
    "aider": (CHAT, {"model": "alias", "messages": [{"role": "user", "content": "A"}], "temperature": 0, "stream": True, "num_ctx": 4096}),
    "Open WebUI": (CHAT, {
        "model": "alias", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A"}], "stream": True,
        "stream_options": {"include_usage": True}}),
}


@pytest.mark.parametrize("program", BODIES)
def test_bodies_of_programs(server, program):
    path, body = BODIES[program]
    if not body.get("stream"):
        status, _, text = server.post(path, body, X_Slo_Ttft_Ms="200", X_Slo_Tpot_Ms="50")
        assert status == 200, text
        answer = json.loads(text)
        assert len(answer["choices"]) == (2 if body.get("echo") else 1) and answer["usage"]["total_tokens"] > 0
        return
    chunks = server.events(path, body)
    assert chunks[0]["choices"][0]["index"] == 0
    if body.get("stream_options"):
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0
    if body.get("ignore_eos"):
        ends = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
        assert ends == ["length"]


def test_scores_of_the_evaluation_harness(server):
    """It sums the logarithms of the tokens after the context, and asks whether the best token was the one."""
    path, body = BODIES["lm-evaluation-harness, scores"]
    for choice, prompt in zip(json.loads(server.post(path, body)[2])["choices"], body["prompt"], strict=True):
        scores = choice["logprobs"]["token_logprobs"][:-1]
        assert len(scores) == len(prompt) and scores[0] is None and all(score <= 0 for score in scores[1:])
        for token, best in list(zip(choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"]))[1:-1]:
            assert max(best, key=best.get) is not None and token in best


CLAUDE_CODE = {
    "model": "alias", "max_tokens": 16, "stream": True, "temperature": 1,
    "system": [{"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
    "metadata": {"user_id": "user_1_account__session_2"},
}


def test_claude_code(server):
    """`/v1/messages?beta=true` with its headers, and count_tokens each turn."""
    head = {"anthropic_version": "2023-06-01", "anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14", "x_api_key": "none"}
    status, headers, text = server.post("/v1/messages?beta=true", CLAUDE_CODE, **head)
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    assert text.startswith("event: message_start\n") and "event: message_stop\n" in text
    count = {key: CLAUDE_CODE[key] for key in ("model", "system", "messages")}
    status, _, text = server.post("/v1/messages/count_tokens?beta=true", count, **head)
    assert status == 200 and 0 < json.loads(text)["input_tokens"] < CONTEXT


SHELL = {"type": "function", "name": "shell", "description": "Runs a shell command and returns its output.", "strict": False, "parameters": {
    "type": "object", "required": ["command"], "additionalProperties": False, "properties": {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The command to execute"},
        "workdir": {"type": "string"}, "timeout_ms": {"type": "number"},
        "with_escalated_permissions": {"type": "boolean"}, "justification": {"type": "string"}}}}
PLAN = {"type": "function", "name": "update_plan", "description": "Updates the task plan.", "strict": False, "parameters": {
    "type": "object", "required": ["plan"], "additionalProperties": False, "properties": {
        "explanation": {"type": "string"}, "plan": {"type": "array", "items": {
            "type": "object", "required": ["step", "status"], "additionalProperties": False, "properties": {
                "step": {"type": "string"}, "status": {"type": "string", "description": "One of: pending, in_progress, completed"}}}}}}}
WEATHER = {"type": "function", "name": "get_weather", "description": "Weather of a city.", "strict": False, "parameters": {
    "type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}}}
# What Codex has beside functions: it is passed over.
OTHER_TOOLS = [{"type": "custom", "name": "apply_patch", "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\" /(.|\\n)*/"}},
               {"type": "web_search", "external_web_access": False},
               {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": []}]
CODEX = {
    "model": "hermes",
    "instructions": "You are a coding agent running in the Codex CLI, a terminal-based coding assistant.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions instructions>read-only"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context><cwd>/w</cwd></environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in this folder?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "List it."}], "encrypted_content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": '{"command":["bash","-lc","ls"],"workdir":"/w"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"output":"README.md\\n","metadata":{"exit_code":0}}'},
        {"type": "function_call", "call_id": "call_2", "name": "shell", "arguments": '{"command":["cat","README.md"]}'},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "# Read me"}]},
    ],
    "tools": [SHELL, PLAN, WEATHER, *OTHER_TOOLS], "tool_choice": "auto", "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True, "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "019f0000-0000-7000-8000-000000000000", "text": {"verbosity": "medium"},
}
CODEX_HEADERS = {"Authorization": "Bearer none", "Accept": "text/event-stream", "originator": "codex_cli_rs", "version": "0.63.0",
                 "session_id": "019f0000-0000-7000-8000-000000000000", "User_Agent": "codex_cli_rs/0.63.0 (Linux; x86_64)"}


@pytest.mark.parametrize("ask, kinds", [("A", ["message"]), ("W", ["reasoning", "function_call"])])
def test_r114_codex(hermes, ask, kinds):  # noqa: F811
    """A turn of Codex in the middle of its work: calls and their results before it, tools of four kinds with it."""
    events = checked_events(hermes.post("/v1/responses", {**CODEX, "chat_template_kwargs": {"ask": ask}}, **CODEX_HEADERS))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == kinds
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["output"] == done
    assert events[-1]["response"]["usage"]["input_tokens"] > 100
    if ask == "A":
        assert done[0]["content"][0]["text"] == HERMES["A"]
    else:
        assert (done[1]["name"], json.loads(done[1]["arguments"])) == ("get_weather", CITY) and done[1]["call_id"]
    assert hermes.get("/v1/responses/" + events[-1]["response"]["id"])[0] == 404, "store is false"


def test_r114_codex_is_told_what_is_passed_over(hermes):  # noqa: F811
    _, headers, _ = hermes.post("/v1/responses", CODEX, **CODEX_HEADERS)
    for kind in "tools[3].type=custom", "tools[4].type=web_search", "tools[5].type=namespace":
        assert kind in headers["x-unknown-fields"]
    assert "input" not in headers["x-unknown-fields"] and "prompt_cache_key" not in headers["x-unknown-fields"]


def test_plain_curl(server):
    """No content type, and a line end of another system after the body."""
    connection = server.connect()
    connection.request("POST", CHAT, json.dumps(chat_body("A")) + "\r\n", {"Content-Type": ""})
    assert connection.getresponse().status == 200
    connection.close()
