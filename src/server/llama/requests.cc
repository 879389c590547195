#include "server/llama/requests.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "base/random.h"
#include "server/llama/peer.h"
#include "server/llama/settings.h"
#include "server/llama/wire.h"
#include "server/openai/fill_in.h"

namespace quern {
namespace {

constexpr size_t kMostFields = 256;
constexpr size_t kMostExtras = 1024;

ApiError wrong(std::string param, std::string message) {
  return {400, std::move(message), "invalid_value", std::move(param)};
}

/// One prompt: text, ids, or a list of both, in which only the first text begins with the beginning of text.
Checked<Json> read_prompt(const Json& value, const TextModel& model) {
  if (value.is_object()) {
    const Json* media = value.present("multimodal_data");
    if (media != nullptr && (!media->is_array() || !media->items().empty()))
      return unsupported("prompt", "this model takes text only: leave out multimodal_data");
    const Json* text = value.present("prompt_string");
    if (text == nullptr || !text->is_string()) return wrong("prompt", "\"prompt\": an object needs a prompt_string");
    return read_prompt(*text, model);
  }
  if (!value.is_string() && !value.is_array())
    return wrong("prompt", "\"prompt\" must be a string, tokens, a list of both, or a list of prompts");
  Json ids(Json::Array{});
  const Json::Array single = {value};
  const Json::Array& parts = value.is_string() ? single : value.items();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_string()) {
      ids.items().push_back(parts[i]);
      continue;
    }
    const TextPiece piece{parts[i].as_string(), true};
    ASSIGN_OR_RETURN(const std::vector<int32_t> made, encode_prompt(model, {&piece, 1}, i == 0));
    for (const int32_t id : made) ids.items().emplace_back(int64_t{id});
  }
  return ids;
}

/// Several prompts are a list without a token in it.
bool is_several(const Json& value) {
  return value.is_array() && !value.items().empty() &&
         std::ranges::none_of(value.items(), [](const Json& item) { return item.is_number(); });
}

Checked<Json> read_prompts(const Json& value, const TextModel& model) {
  Json prompts(Json::Array{});
  const Json::Array single = {value};
  for (const Json& one : is_several(value) ? value.items() : single) {
    ASSIGN_OR_RETURN(Json ids, read_prompt(one, model));
    prompts.items().push_back(std::move(ids));
  }
  return prompts;
}

class CompletionReader {
 public:
  /// Reads everything but the prompt, which has been read before.
  CompletionReader(Fields& fields, const TextModel& model) : model_(model), fields_(fields) {
    body_.set("model", read_model(fields_, model_.options));
    limits_.max_tokens = read_peer_tokens(fields_, "max_tokens");
    const auto predicted = read_peer_tokens(fields_, "n_predict");
    if (fields_.any("n_predict") != nullptr) limits_.max_tokens = predicted;
    limits_.stops = read_peer_stops(fields_, "stop");
    std::vector<std::string> passed_over;
    read_llama_sampling(fields_, model_, body_, passed_over);
    read_form(body_, *form_);
    reuse_ = fields_.boolean("cache_prompt").value_or(true);
    read_unknown(fields_, model_.options, unknown_);
    unknown_.insert(unknown_.end(), passed_over.begin(), passed_over.end());
  }

  /// `prompts`: lists of ids; called once.
  Checked<Generation> read(Json prompts, bool several) {
    const auto& form = form_;
    form->several = several || body_.integer("n").value_or(1) > 1;
    body_.set("prompt", std::move(prompts));
    const int64_t asked = limits_.max_tokens.value_or(-1);
    ASSIGN_OR_RETURN(Generation generation, read_peer_completion(body_, std::move(limits_), model_));
    generation.protocol = Protocol::llama;
    generation.unknown_fields = std::move(unknown_);
    if (!reuse_) generation.params.cache_salt = random_hex();
    form->settings = llama_settings(generation.params, asked);
    form->settings.set("timings_per_token", form->timings);
    if (generation.constraint) form->settings.set("grammar", generation.constraint->text);
    generation.form = form;
    return generation;
  }

 private:
  void read_form(Json& body, LlamaForm& form) {
    body.set("stream", fields_.boolean("stream").value_or(false));
    if (const auto probabilities = fields_.integer("n_probs", 0, model_.most_logprobs()); probabilities > 0)
      body.set("logprobs", *probabilities);
    if (const auto count = fields_.integer("n_cmpl", 1, 128)) body.set("n", *count);
    form.tokens = fields_.boolean("return_tokens").value_or(false);
    form.timings = fields_.boolean("timings_per_token").value_or(false);
    if (const Json::Array* names = fields_.array("response_fields", kMostFields)) {
      for (const Json& name : *names) {
        if (!name.is_string()) return fields_.wrong_kind("response_fields", "strings", name);
        form.response_fields.push_back(name.as_string());
      }
    }
  }

  const TextModel& model_;
  Fields& fields_;
  Json body_;
  PeerLimits limits_;
  const std::shared_ptr<LlamaForm> form_ = std::make_shared<LlamaForm>();
  bool reuse_ = true;
  std::vector<std::string> unknown_;
};

/// How a model marks a repository and its files.
struct RepositoryMarks {
  std::string_view repository;
  std::string_view file;
};

std::optional<RepositoryMarks> repository_marks(const Tokenizer& tokenizer) {
  static constexpr RepositoryMarks known[] = {
      {"<|repo_name|>", "<|file_sep|>"}, {"<repo_name>", "<file_sep>"}, {"<reponame>", "<filename>"}};
  for (const RepositoryMarks& marks : known) {
    if (tokenizer.id_of(marks.repository) && tokenizer.id_of(marks.file)) return marks;
  }
  return std::nullopt;
}

/// Other files, which come before the text.
std::vector<TextPiece> read_extras(Fields& fields, const Tokenizer& tokenizer) {
  const Json::Array* extras = fields.array("input_extra", kMostExtras);
  if (extras == nullptr || extras->empty()) return {};
  const auto marks = repository_marks(tokenizer);
  std::vector<TextPiece> pieces;
  if (marks) pieces = {{std::string(marks->repository), true}, {"myproject\n"}};
  for (const Json& extra : *extras) {
    const auto text = extra.string("text");
    if (!text) {
      fields.invalid("input_extra", "invalid_value", "\"input_extra\" must be a list of objects with a text");
      return {};
    }
    if (marks) {
      pieces.push_back({std::string(marks->file), true});
      pieces.push_back({extra.string("filename").value_or("tmp") + '\n'});
    }
    pieces.push_back({*text + (marks ? "\n" : "")});
  }
  if (marks) {
    pieces.push_back({std::string(marks->file), true});
    pieces.push_back({"filename\n"});
  }
  return pieces;
}

}  // namespace

Checked<Generation> parse_llama_completion(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_llama_completion(fields, model);
}

Checked<Generation> read_llama_completion(Fields& fields, const TextModel& model) {
  const Json* prompt = fields.one_of("prompt", {Fields::Kind::string, Fields::Kind::array, Fields::Kind::object});
  if (prompt == nullptr) fields.invalid("prompt", "missing_required_parameter", "\"prompt\" must be provided");
  CompletionReader reader(fields, model);
  if (fields.describing()) return Generation();
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(Json prompts, read_prompts(*prompt, model));
  return reader.read(std::move(prompts), is_several(*prompt));
}

Checked<Generation> parse_infill(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_infill(fields, model);
}

Checked<Generation> read_infill(Fields& fields, const TextModel& model) {
  const auto prefix = fields.string("input_prefix");
  const auto suffix = fields.string("input_suffix");
  const std::string prompt = fields.string("prompt").value_or("");
  std::vector<TextPiece> pieces = read_extras(fields, *model.tokenizer);
  for (const auto& [name, missing] : {std::pair("input_prefix", !prefix), std::pair("input_suffix", !suffix)}) {
    if (missing) fields.invalid(name, "missing_required_parameter", fmt::format("\"{}\" is required", name));
  }
  CompletionReader reader(fields, model);
  if (fields.describing()) return Generation();
  const auto marks = middle_marks(*model.tokenizer);
  if (!marks) {
    fields.fail(
        unsupported("input_suffix",
                    "Infill is not supported by this model: it has no tokens for filling in the middle of a text."));
  }
  if (fields.failed()) return *fields.error();
  for (TextPiece& piece : middle_pieces(*marks, *prefix, *suffix)) pieces.push_back(std::move(piece));
  if (!prompt.empty()) pieces.push_back({prompt});
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encode_prompt(model, pieces));
  return reader.read(Json(Json::Array{ids_json(ids)}), false);
}

Checked<PoolingCall> parse_llama_embedding(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_llama_embedding(fields, model);
}

Checked<PoolingCall> read_llama_embedding(Fields& fields, const TextModel& model) {
  Json asked;
  asked.set("model", read_model(fields, model.options));
  const Json* content = fields.one_of("content", {Fields::Kind::string, Fields::Kind::array});
  const Json* input = fields.one_of("input", {Fields::Kind::string, Fields::Kind::array});
  if (content == nullptr) content = input;
  if (content == nullptr) fields.invalid("content", "missing_required_parameter", "\"content\" must be provided");
  const auto norm = fields.integer("embd_normalize", -1, 2).value_or(2);
  if (norm != 2 && norm != -1)
    fields.fail(unsupported("embd_normalize", "embd_normalize: say 2 for length 1, or -1 for values as they are"));
  std::vector<std::string> unknown;
  read_unknown(fields, model.options, unknown);
  if (fields.failed()) return *fields.error();
  fields.describe_as_optional("content");
  if (fields.describing()) return PoolingCall();
  asked.set("input", *content).set("normalize", norm == 2);
  ASSIGN_OR_RETURN(PoolingCall call, read_embeddings(asked, model));
  call.unknown_fields = std::move(unknown);
  call.form = [](const PoolingCall&, const std::vector<std::vector<float>>& vectors, int64_t) {
    std::string out = "[";
    for (size_t i = 0; i < vectors.size(); ++i) {
      out += fmt::format("{}{{\"index\":{},\"embedding\":[", i > 0 ? "," : "", i);
      append_floats(out, vectors[i]);
      out += "]}";
    }
    return out + ']';
  };
  return call;
}

Checked<std::string> apply_template(Fields& fields, const TextModel& model) {
  read_model(fields, model.options);
  const ToolUse tools = read_tool_use(fields, model);
  ASSIGN_OR_RETURN(const Rendering rendering, render_messages(fields, model, AnswerParams(), tools));
  return Json().set("prompt", join(rendering.pieces)).dump();
}

std::string llama_props(const TextModel& model) {
  const ServerOptions& options = model.options;
  const auto token = [&](std::optional<int32_t> id) {
    return id ? std::string(model.tokenizer->token_text(*id)) : std::string();
  };
  Json settings;
  settings.set("id", 0).set("id_task", -1).set("n_ctx", int64_t{options.max_model_len}).set("speculative", false);
  settings.set("is_processing", false).set("params", llama_default_settings(model));
  Json props;
  props.set("default_generation_settings", std::move(settings)).set("total_slots", int64_t{options.most_sequences});
  props.set("model_alias", options.model_names.front()).set("model_path", options.model_root);
  props.set("modalities", Json().set("vision", false).set("audio", false));
  props.set("chat_template", model.chat_template ? model.chat_template->source() : std::string());
  if (model.chat_template && model.chat_template->source_for_tools() != model.chat_template->source()) {
    props.set("chat_template_tool_use", model.chat_template->source_for_tools());
  }
  props.set("bos_token", token(model.tokenizer->bos())).set("eos_token", token(model.tokenizer->eos()));
  return props.set("build_info", "quern-" + options.version).dump();
}

Checked<std::string> llama_slots(std::string_view target, const TextModel& model, const EngineStats& stats) {
  const bool must_be_free = target.find("fail_on_no_slot=1") != std::string_view::npos;
  if (must_be_free && stats.running >= model.options.most_sequences) return plain_error(503, "no slot available");
  Json slots(Json::Array{});
  for (int32_t i = 0; i < model.options.most_sequences; ++i) {
    Json slot;
    slot.set("id", i).set("n_ctx", int64_t{model.options.max_model_len}).set("speculative", false);
    slots.items().push_back(std::move(slot.set("is_processing", i < stats.running)));
  }
  return slots.dump();
}

}  // namespace quern
