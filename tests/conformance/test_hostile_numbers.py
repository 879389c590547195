"""S18 to S20: every field that is a number, on every route that has it, with the values that break servers. What is in its bounds is
taken, what is not is refused by its name, and null is as if it were not there."""
import json

import pytest

HI = [{"role": "user", "content": "hi"}]
MANY = 2**31
# Field -> least, most (None: only of what fits), and whether it is an integer.
SAMPLING = {"temperature": (0, 2, False), "top_p": (1e-6, 1, False), "min_p": (0, 1, False), "presence_penalty": (-2, 2, False),
            "frequency_penalty": (-2, 2, False), "repetition_penalty": (0.001, None, False), "top_k": (-1, None, True), "n": (1, 128, True),
            "seed": (-2**63, 2**63 - 1, True), "max_tokens": (1, None, True), "min_tokens": (0, None, True), "priority": (1 - MANY, MANY - 1, True),
            "prompt_logprobs": (0, 20, True)}
ROUTES = {
    "/v1/chat/completions": ({"messages": HI, "max_tokens": 1},
                             {**SAMPLING, "max_completion_tokens": (1, None, True), "top_logprobs": (0, 20, True)}),
    "/v1/completions": ({"prompt": "A", "max_tokens": 1}, {**SAMPLING, "logprobs": (0, 20, True), "best_of": (0, 128, True)}),
    "/v1/responses": ({"input": "hi", "max_output_tokens": 1}, {"temperature": (0, 2, False), "top_p": (1e-6, 1, False),
                                                              "max_output_tokens": (1, None, True), "top_logprobs": (0, 20, True)}),
    "/v1/messages": ({"messages": HI, "max_tokens": 1, "model": "alias"}, {"temperature": (0, 2, False), "max_tokens": (1, None, True)}),
    "/completion": ({"prompt": "A", "n_predict": 1}, {"n_probs": (0, None, True)}),  # of the others, what is out of bounds means off
}
CASES = [(route, field) for route, (_, fields) in ROUTES.items() for field in fields]
NO_NUMBER = ['"NaN"', '"5"', "true", "[]", "{}", '"Infinity"']
TOO_LARGE = ["1e400", "-1e400", str(2**63 * 2), str(10**40)]
NO_JSON = ["NaN", "Infinity", "-Infinity", "0x10", "+1", "1.", "01"]


def ask(server, route, field, value):
    """Status, error text; `value` is the text of JSON."""
    body = {**ROUTES[route][0], field: "@"}
    if field == "top_logprobs" and route.endswith("chat/completions"):
        body["logprobs"] = True
    status, _, text = server.post(route, json.dumps(body).replace('"@"', value), Content_Type="application/json")
    return status, text


def refused(server, route, field, value, named=True):
    status, text = ask(server, route, field, value)
    assert status == 400, (value, status, text)
    error = json.loads(text)["error"]
    assert not named or field in error["message"] or error.get("param") == field, (value, text)


@pytest.mark.parametrize("route, field", CASES)
def test_s19_what_is_no_number(server, route, field):
    for value in NO_NUMBER:
        refused(server, route, field, value)


@pytest.mark.parametrize("route, field", CASES)
def test_s19_numbers_that_are_no_number_of_json_or_infinite(server, route, field):
    for value in TOO_LARGE + NO_JSON:
        refused(server, route, field, value, named=False)


@pytest.mark.parametrize("route, field", CASES)
def test_s19_bounds(server, route, field):
    least, most, integer = ROUTES[route][1][field]
    step = 1 if integer else 0.01
    wrong = [least - step] + ([most + step] if most is not None else [])
    wrong += [value for value in (0, -1, MANY, 2**63) if value < least or most is not None and value > most]
    for value in wrong:
        refused(server, route, field, json.dumps(value))
    right = {least, *([most] if most is not None else []), *(value for value in (0, 1) if value >= least and (most is None or value <= most))}
    if field in ("n", "best_of"):
        right.discard(0)
    for value in right:
        status, text = ask(server, route, field, json.dumps(value))
        assert status == 200 or field == "best_of" and "best_of" in text, (value, text)
    status, text = ask(server, route, field, "null")
    assert status == 200 or field == "max_tokens" and route == "/v1/messages", text
    if integer:
        refused(server, route, field, "1.5")


@pytest.mark.parametrize("route, field", CASES)
def test_s19_what_only_the_size_of_texts_bounds(server, route, field):
    """The largest numbers are cut or refused, and cost nothing."""
    for value in (MANY - 1, MANY, 2**32, 2**62, 2**63 - 1):
        status, text = ask(server, route, field, str(value))
        assert status in (200, 400), (value, text)


@pytest.mark.parametrize("value", ["320", "-1", str(MANY), str(2**32), str(2**63), "1e400", "1.5", '"x"', "null", "true", "[[1]]"])
def test_s20_token_ids(server, value):
    for field in ("stop_token_ids", "allowed_token_ids"):
        refused(server, "/v1/completions", field, f"[{value}]", named=value != "1e400")
    refused(server, "/v1/completions", "prompt", f"[1, {value}]", named=False)
    status, text = ask(server, "/v1/completions", "logit_bias", json.dumps({value: 1}))
    assert status == 400, text
