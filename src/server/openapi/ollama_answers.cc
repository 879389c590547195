// Answers of Ollama's routes.
#include "server/openapi/answers.h"
#include "server/openapi/shapes.h"

namespace quern {
namespace {

using namespace shapes;  // NOLINT: this file is made of these words

Json scored() {
  const Json one = object({{"token", text()}, {"logprob", number()}, {"bytes", list(count())}});
  return list(with(one, {{"top_logprobs?", list(one)}}));
}

/// What all lines of an answer have; `said` is the member that has its text.
Json line(std::string_view said, Json schema) {
  return object({{"model", text()}, {"created_at", text()}, {said, std::move(schema)}, {"logprobs?", scored()}});
}

/// Where nothing was generated there are no counts.
Json ended(Json line) {
  return with(std::move(line), {{"done", word(true)},
                                {"done_reason", words({"stop", "length", "load", "unload"})},
                                {"context?", list(count())},
                                {"total_duration?", count()},
                                {"load_duration?", count()},
                                {"prompt_eval_count?", count()},
                                {"prompt_eval_duration?", count()},
                                {"eval_count?", count()},
                                {"eval_duration?", count()}});
}

Json lines(const Json& line) {
  return any_of({with(line, {{"done", word(false)}}), ended(line), object({{"error", text()}})})
      .set("description", "Each line");
}

Json chat_line() {
  Json function = object({{"index", count()}, {"name", text()}, {"arguments", kind("object")}});
  Json call = object({{"id", text()}, {"function", std::move(function)}});
  return line("message", object({{"role", word("assistant")},
                                 {"content", text()},
                                 {"thinking?", text()},
                                 {"tool_calls?", list(std::move(call))}}));
}

Json generate_line() { return with(line("response", text()), {{"thinking?", text()}}); }

Json details() {
  return object({{"parent_model", text()},
                 {"format", text()},
                 {"family", text()},
                 {"families", list(text())},
                 {"parameter_size", text()},
                 {"quantization_level", text()},
                 {"context_length?", count()},
                 {"embedding_length?", count()}});
}

Json named(Members members) {
  Json one =
      object({{"name", text()}, {"model", text()}, {"size", count()}, {"digest", text()}, {"details", details()}});
  return object({{"models", list(with(std::move(one), members))}});
}

}  // namespace

Json ollama_chat_answer() { return ended(chat_line()); }
Json ollama_chat_lines() { return lines(chat_line()); }
Json ollama_generate_answer() { return ended(generate_line()); }
Json ollama_generate_lines() { return lines(generate_line()); }

Json ollama_embed_answer() {
  return object({{"model", text()},
                 {"embeddings", list(list(number()))},
                 {"total_duration", count()},
                 {"load_duration", count()},
                 {"prompt_eval_count", count()}});
}

Json ollama_tags_answer() { return named({{"modified_at", text()}, {"capabilities?", list(text())}}); }

Json ollama_running_answer() {
  return named({{"expires_at", text()}, {"size_vram", count()}, {"context_length", count()}});
}

Json ollama_show_answer() {
  return object({{"license?", text()},
                 {"modelfile", text()},
                 {"parameters?", text()},
                 {"template?", text()},
                 {"details", details()},
                 {"model_info", kind("object")},
                 {"capabilities", list(text())},
                 {"modified_at", text()}});
}

Json ollama_pull_answer() { return object({{"status", word("success")}}); }

Json ollama_pull_lines() {
  return any_of(
             {with(object({{"status", text()}}), {{"digest?", text()}, {"total?", count()}, {"completed?", count()}}),
              object({{"error", text()}})})
      .set("description", "Each line");
}

}  // namespace quern
