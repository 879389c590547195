#include "apps/task.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "apps/loader_text.h"
#include "base/file.h"

namespace quern {
namespace {

constexpr int64_t max_file_bytes = int64_t{16} << 20;

/// What the files of sentence-transformers say, as far as there are any.
struct Modules {
  std::optional<Pooling> pooling;
  std::vector<DenseSpec> dense;
  bool normalize = false;
  int max_tokens = 0;
  std::map<std::string, std::string> prompts;
  std::string default_prompt;
};

/// A null Json when there is no such file.
Result<Json> read_if_there(const std::string& path) {
  if (!file_exists(path)) return Json();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, max_file_bytes));
  auto json = Json::parse(text);
  if (!json.ok()) return Error{fmt::format("{}: {}", path, json.error().message)};
  return std::move(*json);
}

/// Old files have a flag for each way, new ones its name.
Result<Pooling> read_pooling(const std::string& path) {
  ASSIGN_OR_RETURN(const Json json, read_if_there(path));
  if (!json.is_object()) return Error{fmt::format("{}: there is no such file, or it holds no object", path)};
  if (json.boolean("include_prompt") == false) {
    return Error{fmt::format("{}: \"include_prompt\" false is not supported", path)};
  }
  struct Way {
    const char* flag;
    const char* name;
    Pooling pooling;
  };
  constexpr Way ways[] = {{"pooling_mode_cls_token", "cls", Pooling::first},
                          {"pooling_mode_mean_tokens", "mean", Pooling::mean},
                          {"pooling_mode_lasttoken", "lasttoken", Pooling::last},
                          {"pooling_mode_max_tokens", "max", Pooling::largest},
                          {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::weighted_mean},
                          {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::mean_sqrt_len}};
  std::optional<Pooling> found;
  int on = 0;
  if (const Json* mode = json.present("pooling_mode")) {
    const Json* name = mode->is_array() && mode->items().size() == 1 ? &mode->items()[0] : mode;
    for (const Way& way : ways) {
      if (*name == Json(way.name)) found = way.pooling;
    }
  } else {
    for (const auto& [key, value] : json.members())
      on += key.starts_with("pooling_mode_") && value == Json(true) ? 1 : 0;
    for (const Way& way : ways) {
      if (on == 1 && json.boolean(way.flag) == true) found = way.pooling;
    }
    if (on == 0) found = Pooling::mean;
  }
  if (!found) {
    return Error{fmt::format("{}: only one of the poolings {} is supported", path,
                             "cls, mean, lasttoken, max, weightedmean and mean_sqrt_len_tokens")};
  }
  return *found;
}

/// Its tensors are in a file of their own, which the checkpoint has under the folder's name.
Result<DenseSpec> read_dense(const std::string& folder, const std::string& place) {
  const std::string path = folder + "/" + place + "/config.json";
  ASSIGN_OR_RETURN(const Json json, read_if_there(path));
  if (!json.is_object()) return Error{fmt::format("{}: there is no such file, or it holds no object", path)};
  DenseSpec dense{place + ".linear", 0, json.boolean("bias").value_or(true), HeadSpec::Function::none};
  const int64_t size = json.integer("out_features").value_or(0);
  if (size < 1 || size > 1 << 20) return Error{fmt::format("{}: \"out_features\" must be 1 to 1048576", path)};
  dense.size = static_cast<int>(size);
  const std::string function = json.string("activation_function").value_or("torch.nn.modules.activation.Tanh");
  if (function.ends_with(".Tanh")) dense.function = HeadSpec::Function::tanh;
  if (function.ends_with(".GELU")) dense.function = HeadSpec::Function::gelu;
  if (dense.function == HeadSpec::Function::none && !function.ends_with(".Identity")) {
    return Error{fmt::format("{}: the activation function {} is not supported", path, function)};
  }
  return dense;
}

Status read_module(const std::string& folder, const Json& module, Modules* modules) {
  const std::string type = module.string("type").value_or("");
  const std::string kind = type.substr(type.rfind('.') + 1);
  const std::string path = folder + "/" + module.string("path").value_or("");
  if (kind == "Transformer") return {};
  if (kind == "Normalize") return modules->normalize = true, Status();
  if (kind == "Pooling") {
    ASSIGN_OR_RETURN(modules->pooling, read_pooling(path + "/config.json"));
    return {};
  }
  if (kind == "Dense" && modules->pooling && !modules->normalize) {
    ASSIGN_OR_RETURN(const DenseSpec dense, read_dense(folder, module.string("path").value_or("")));
    modules->dense.push_back(dense);
    return {};
  }
  return Error{fmt::format("{}/modules.json: the module \"{}\" is not supported{}", folder, type,
                           kind == "Dense" ? " there; it must stand between pooling and normalization" : "")};
}

Result<Modules> read_modules(const std::string& folder) {
  Modules modules;
  ASSIGN_OR_RETURN(const Json list, read_if_there(folder + "/modules.json"));
  if (list.is_null()) return modules;
  if (!list.is_array()) return Error{fmt::format("{}/modules.json: expected a list of modules", folder)};
  for (const Json& module : list.items()) TRY(read_module(folder, module, &modules));
  ASSIGN_OR_RETURN(const Json limits, read_if_there(folder + "/sentence_bert_config.json"));
  if (const auto most = limits.integer("max_seq_length"); most && *most > 0 && *most <= INT32_MAX) {
    modules.max_tokens = static_cast<int>(*most);
  }
  ASSIGN_OR_RETURN(const Json names, read_if_there(folder + "/config_sentence_transformers.json"));
  if (const Json* prompts = names.present("prompts"); prompts != nullptr && prompts->is_object()) {
    for (const auto& [name, text] : prompts->members()) {
      if (text.is_string()) modules.prompts[name] = text.as_string();
    }
  }
  modules.default_prompt = names.string("default_prompt_name").value_or("");
  return modules;
}

/// The way of a GGUF file, as its translation says it; nothing when the file is for text.
std::optional<Pooling> stored_pooling(const Json& config) {
  const std::string name = config.string("pooling").value_or("");
  if (name == "cls") return Pooling::first;
  if (name == "mean") return Pooling::mean;
  if (name == "last") return Pooling::last;
  return std::nullopt;
}

Status read_dimensions(const Json& config, int dim, Task* task) {
  task->any_dimensions = config.boolean("is_matryoshka").value_or(false);
  const Json* list = config.present("matryoshka_dimensions");
  if (list == nullptr) return {};
  const auto fits = [&](const Json& one) {
    return one.is_integer() && one.as_integer() > 0 && one.as_integer() <= dim;
  };
  if (!list->is_array() || !std::all_of(list->items().begin(), list->items().end(), fits)) {
    return Error{fmt::format("config: \"matryoshka_dimensions\" must be a list of numbers from 1 to {}", dim)};
  }
  for (const Json& one : list->items()) task->dimensions.push_back(static_cast<int32_t>(one.as_integer()));
  task->any_dimensions = false;
  return {};
}

/// Cross-encoders say in their config.json what is done to their scores.
bool wants_sigmoid(const Json& config) {
  std::string function = config.string("sbert_ce_default_activation_function").value_or("");
  if (const Json* own = config.present("sentence_transformers"))
    function = own->string("activation_fn").value_or(function);
  return !function.ends_with("Identity");
}

Result<int32_t> token_of(const Tokenizer& tokenizer, const std::string& word) {
  ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(word, {.add_special = false}));
  if (ids.size() == 1) return ids[0];
  return Error{fmt::format("the model cannot judge pairs: \"{}\" is no single token of its vocabulary", word)};
}

/// A language model that judges pairs by saying yes or no (Qwen's rerankers).
Result<PoolerSpec> yes_or_no(const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(checkpoint));
  ASSIGN_OR_RETURN(const int32_t yes, token_of(*tokenizer, "yes"));
  ASSIGN_OR_RETURN(const int32_t no, token_of(*tokenizer, "no"));
  PoolerSpec pooler{Pooling::last, HeadSpec{}};
  pooler.head->labels = 2;
  pooler.head->yes_or_no = true;
  pooler.head->tokens = {yes, no};
  return pooler;
}

/// The same, where a GGUF file holds the rows of the two answers and nothing of the others.
PoolerSpec stored_yes_or_no() {
  PoolerSpec pooler{Pooling::last, HeadSpec{}};
  pooler.head->labels = 2;
  pooler.head->yes_or_no = true;
  pooler.head->output = "cls.output";
  return pooler;
}

Status check_scores(const Checkpoint& checkpoint, const DecoderSpec& spec) {
  const HeadSpec& head = *spec.pooler->head;
  if (head.labels == 1 || head.yes_or_no) return {};
  return Error{fmt::format("{}: the model sorts texts into {} classes; only models that give one score are supported",
                           checkpoint.path(), head.labels)};
}

/// Of a GGUF file: layers that every vector goes through.
std::vector<DenseSpec> stored_dense(const Checkpoint& checkpoint) {
  std::vector<DenseSpec> dense;
  for (const char* name : {"dense_2", "dense_3"}) {
    const StoredTensor* matrix = checkpoint.find(std::string(name) + ".weight");
    if (matrix != nullptr) dense.push_back({name, static_cast<int>(matrix->shape[0]), false, HeadSpec::Function::none});
  }
  return dense;
}

/// Vectors: the files say how, or the architecture has its usual way.
Status complete_pooler(const Checkpoint& checkpoint, const Json& config, const Modules& modules, DecoderSpec* spec) {
  const std::optional<Pooling> said = modules.pooling ? modules.pooling : stored_pooling(config);
  if (!spec->pooler) spec->pooler.emplace(PoolerSpec{is_causal(*spec) ? Pooling::last : Pooling::mean, {}});
  spec->pooler->head.reset();
  spec->pooler->dense = checkpoint.kind() == CheckpointKind::gguf ? stored_dense(checkpoint) : modules.dense;
  if (said) spec->pooler->pooling = *said;
  if (spec->pooler->pooling == Pooling::first && is_causal(*spec)) {
    return Error{fmt::format("{}: the first token of a {} knows nothing of the others, so it cannot stand for the text",
                             checkpoint.path(), spec->architecture)};
  }
  return {};
}

/// What the files mean without a word from the user.
OutputKind natural_task(const DecoderSpec& spec, const Json& config, const Modules& modules) {
  if (spec.pooler) return spec.pooler->head ? OutputKind::scores : OutputKind::pooled;
  return modules.pooling || stored_pooling(config) ? OutputKind::pooled : OutputKind::tokens;
}

}  // namespace

const char* task_name(OutputKind output) {
  return output == OutputKind::tokens ? "generate" : output == OutputKind::pooled ? "embed" : "score";
}

Result<Task> choose_task(const Checkpoint& checkpoint, const Json& config, const std::string& wanted,
                         DecoderSpec* spec) {
  Task task;
  Modules modules;
  if (checkpoint.kind() == CheckpointKind::safetensors && is_directory(checkpoint.path())) {
    ASSIGN_OR_RETURN(modules, read_modules(checkpoint.path()));
  }
  if (config.string("pooling") == "rank") {
    const bool has_head = spec->pooler && spec->pooler->head;
    if (!is_causal(*spec) && !has_head) {
      return Error{fmt::format("{}: scores of a {} are only supported from safetensors files", checkpoint.path(),
                               spec->architecture)};
    }
    if (!has_head) spec->pooler = stored_yes_or_no();
  }
  task.output = natural_task(*spec, config, modules);
  for (const OutputKind kind : {OutputKind::tokens, OutputKind::pooled, OutputKind::scores}) {
    if (wanted == task_name(kind)) task.output = kind;
  }
  if (task.output == OutputKind::tokens) {
    if (!spec->pooler) return task;
    return Error{fmt::format("{}: a {} makes no text; quern embed and quern serve use it", checkpoint.path(),
                             spec->architecture)};
  }
  if (is_recurrent(*spec)) {
    return Error{fmt::format("{}: embeddings and scores of a {}, which has recurrent layers, are not supported",
                             checkpoint.path(), spec->architecture)};
  }
  if (task.output == OutputKind::scores) {
    if (!spec->pooler || !spec->pooler->head) {
      if (spec->pooler || !is_causal(*spec)) {
        return Error{fmt::format("{}: a {} gives no scores; say --task embed", checkpoint.path(), spec->architecture)};
      }
      ASSIGN_OR_RETURN(spec->pooler, yes_or_no(checkpoint));
    }
    TRY(check_scores(checkpoint, *spec));
    task.sigmoid = wants_sigmoid(config);
    return task;
  }
  TRY(complete_pooler(checkpoint, config, modules, spec));
  TRY(read_dimensions(config, spec->pooler->vector_size(spec->dim), &task));
  if (modules.pooling) task.normalize = modules.normalize;
  task.max_tokens = modules.max_tokens;
  task.prompts = std::move(modules.prompts);
  task.default_prompt = std::move(modules.default_prompt);
  return task;
}

}  // namespace quern
