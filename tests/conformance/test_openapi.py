"""/openapi.json: every request that can be made of it is answered without a 5xx, and others are still served."""
import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, errors, given, settings

from conftest import error_of

CASES = int(os.environ.get("QUERN_SCHEMATHESIS_CASES", "300"))


@pytest.fixture(scope="module")
def document(server):
    status, _, text = server.get("/openapi.json")
    assert status == 200, text
    return json.loads(text)


def test_d39_the_document_tells_what_is_refused(server, document):
    fields = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert fields["required"] == ["messages"]
    assert fields["properties"]["temperature"] == {"type": ["number", "null"], "minimum": 0, "maximum": 2,
                                                   "description": fields["properties"]["temperature"]["description"]}
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 2.5}
    assert error_of(server.post("/v1/chat/completions", body))["param"] == "temperature"
    assert fields["properties"]["stream_options"]["properties"]["include_usage"]["type"] == ["boolean", "null"]


def test_d39_no_5xx(server, document):
    """Bodies that fit the document and such that do not, for all routes; a usual request is answered all the while."""
    operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert len(operations) >= len(document["paths"])
    share = CASES // sum(1 for operation in operations if operation.body)
    asked = 0

    def check(case):
        nonlocal asked
        answer = case.call(base_url=server.url, timeout=60)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        asked += 1
        if asked % 100 == 0:
            assert server.text("abcA", max_tokens=3)

    for operation in operations:
        for mode in schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE:
            run(operation.as_strategy(generation_mode=mode), check, max(1, share // 2))
    assert asked >= CASES // 2


def run(strategy, check, cases):
    limits = settings(max_examples=cases, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                      suppress_health_check=list(HealthCheck))
    try:
        limits(given(strategy)(lambda case: check(case)))()
    except errors.Unsatisfiable:  # where nothing is sent nothing can be wrong
        pass
