#include "server/wire.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "base/random.h"
#include "server/anthropic/message_wire.h"
#include "server/llama/wire.h"
#include "server/ollama/wire.h"
#include "server/openai/wire.h"
#include "server/responses/response_wire.h"
#include "server/session.h"

namespace quern {
void WholeChoice::add(AnswerPiece piece) {
  text += piece.text;
  for (ReplyPiece& one : piece.reply) {
    switch (one.kind) {
      case ReplyPiece::Kind::content: text += one.text; break;
      case ReplyPiece::Kind::reasoning: reasoning += one.text; break;
      case ReplyPiece::Kind::call: calls.push_back({std::move(one.id), std::move(one.text), {}}); break;
      case ReplyPiece::Kind::arguments: calls.back().arguments += one.text; break;
    }
  }
  std::move(piece.shown.begin(), piece.shown.end(), std::back_inserter(shown));
  token_ids.insert(token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  if (piece.end) end = std::move(*piece.end);
}

HttpResponse error_response(const ApiError& error, Protocol protocol) {
  HttpResponse response = error_response(error);
  switch (protocol) {
    case Protocol::openai:
    case Protocol::responses: break;
    case Protocol::anthropic: response.body = message_error_body(error); break;
    case Protocol::ollama: response.body = ollama_error(error); break;
    case Protocol::llama: response.body = llama_error(error); break;
  }
  return response;
}

std::unique_ptr<Wire> make_wire(const Generation& generation, const TextModel& model) {
  if (generation.form) return generation.form->wire(generation, model);
  if (generation.protocol == Protocol::anthropic) return std::make_unique<MessageWire>(generation, random_hex());
  if (generation.protocol == Protocol::responses) return std::make_unique<ResponseWire>(generation, model);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const OpenAiWire::Identity identity{(generation.chat ? "chatcmpl-" : "cmpl-") + random_hex(),
                                      "quern-" + model.options.version,
                                      std::chrono::duration_cast<std::chrono::seconds>(now).count()};
  return std::make_unique<OpenAiWire>(generation, model, identity);
}

}  // namespace quern
