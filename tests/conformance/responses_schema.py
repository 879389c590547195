"""What Open Responses asks of response objects, items and stream events, as JSON Schema."""
import jsonschema


def exactly(**members):
    """An object with all these members."""
    return {"type": "object", "required": list(members), "properties": members}


STRING, INTEGER, NUMBER, BOOLEAN = ({"type": name} for name in ("string", "integer", "number", "boolean"))
NULL = {"type": "null"}
INDEX = {"type": "integer", "minimum": 0}


def nullable(schema):
    return {"anyOf": [schema, NULL]}


def one_of(*words):
    return {"enum": list(words)}


def list_of(schema):
    return {"type": "array", "items": schema}


SCORED = exactly(token=STRING, logprob={"type": "number", "maximum": 0}, bytes=list_of(INTEGER))
LOGPROBS = list_of({"allOf": [SCORED, exactly(top_logprobs=list_of(SCORED))]})
TEXT_PART = exactly(type=one_of("output_text"), text=STRING, annotations=list_of({}), logprobs=LOGPROBS)
REASONING_PART = exactly(type=one_of("reasoning_text"), text=STRING)
STATUS = one_of("in_progress", "completed", "incomplete")
MESSAGE = exactly(id={"pattern": "^msg_"}, type=one_of("message"), status=STATUS, role=one_of("assistant"),
                  content=list_of(TEXT_PART))
REASONING = exactly(id={"pattern": "^rs_"}, type=one_of("reasoning"), status=STATUS,
                    summary=list_of(exactly(type=one_of("summary_text"), text=STRING)), content=list_of(REASONING_PART),
                    encrypted_content=nullable(STRING))
CALL = exactly(id={"pattern": "^fc_"}, type=one_of("function_call"), status=STATUS, call_id=STRING, name=STRING,
               arguments=STRING)
ITEM = {"oneOf": [MESSAGE, REASONING, CALL]}
TOOL = exactly(type=one_of("function"), name=STRING, description=nullable(STRING), parameters=nullable({"type": "object"}),
               strict=nullable(BOOLEAN))
USAGE = exactly(input_tokens=INDEX, input_tokens_details=exactly(cached_tokens=INDEX, cache_write_tokens=INDEX),
                output_tokens=INDEX, output_tokens_details=exactly(reasoning_tokens=INDEX), total_tokens=INDEX)

RESPONSE = exactly(
    id={"type": "string", "pattern": "^resp_[0-9a-f]{32}$"}, object=one_of("response"), created_at=INTEGER,
    completed_at=nullable(INTEGER), status=one_of("in_progress", "completed", "incomplete", "failed"),
    incomplete_details=nullable(exactly(reason=one_of("max_output_tokens", "content_filter"))), model=STRING,
    previous_response_id=nullable(STRING), instructions=nullable(STRING), output=list_of(ITEM),
    error=nullable(exactly(code=STRING, message=STRING)), tools=list_of(TOOL),
    tool_choice={"anyOf": [one_of("none", "auto", "required"), {"type": "object", "required": ["type"]}]},
    truncation=one_of("auto", "disabled"), parallel_tool_calls=BOOLEAN,
    text=exactly(format=exactly(type=one_of("text", "json_object", "json_schema"))),
    top_p=NUMBER, presence_penalty=NUMBER, frequency_penalty=NUMBER, top_logprobs=INTEGER, temperature=NUMBER,
    reasoning=nullable(exactly(effort=nullable(STRING), summary=nullable(STRING))), usage=nullable(USAGE),
    max_output_tokens=nullable(INTEGER), max_tool_calls=nullable(INTEGER), store=BOOLEAN, background=BOOLEAN,
    service_tier=STRING, metadata={"type": "object", "additionalProperties": STRING}, safety_identifier=nullable(STRING),
    prompt_cache_key=nullable(STRING), user=nullable(STRING))

PLACE = {"item_id": STRING, "output_index": INDEX}
CONTENT = {**PLACE, "content_index": INDEX}
PART = {"oneOf": [TEXT_PART, REASONING_PART]}
ERROR = exactly(type=STRING, code=nullable(STRING), message=STRING, param=nullable(STRING))
EVENTS = {
    "response.created": {"response": RESPONSE},
    "response.in_progress": {"response": RESPONSE},
    "response.completed": {"response": RESPONSE},
    "response.incomplete": {"response": RESPONSE},
    "response.failed": {"response": RESPONSE},
    "response.output_item.added": {"output_index": INDEX, "item": ITEM},
    "response.output_item.done": {"output_index": INDEX, "item": ITEM},
    "response.content_part.added": {**CONTENT, "part": PART},
    "response.content_part.done": {**CONTENT, "part": PART},
    "response.output_text.delta": {**CONTENT, "delta": STRING, "logprobs": LOGPROBS},
    "response.output_text.done": {**CONTENT, "text": STRING, "logprobs": LOGPROBS},
    "response.reasoning_text.delta": {**CONTENT, "delta": STRING},
    "response.reasoning_text.done": {**CONTENT, "text": STRING},
    "response.function_call_arguments.delta": {**PLACE, "delta": STRING},
    "response.function_call_arguments.done": {**PLACE, "name": STRING, "arguments": STRING},
    "error": {"code": nullable(STRING), "message": STRING, "param": nullable(STRING), "error": ERROR},
}
EVENTS = {name: jsonschema.Draft202012Validator(exactly(type=one_of(name), sequence_number=INDEX, **members))
          for name, members in EVENTS.items()}
RESPONSE = jsonschema.Draft202012Validator(RESPONSE)
