// quern list, show and rm: the models of this machine.
#include <algorithm>
#include <ctime>
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/hub/library.h"
#include "apps/hub/pull_bar.h"
#include "base/flags.h"
#include "base/json.h"

namespace quern {
namespace {

Json json_of(const StoredModel& model) {
  Json out;
  out.set("name", Json(model.name)).set("path", Json(model.path)).set("digest", Json(model.digest));
  out.set("format", Json(model.format)).set("family", Json(model.family));
  out.set("parameters", Json(model.parameters)).set("parameter_size", Json(model.parameter_size));
  out.set("quantization", Json(model.quantization)).set("context_length", Json(model.context_length));
  out.set("embedding_length", Json(model.embedding_length)).set("bytes", Json(model.bytes));
  out.set("modified", Json(model.modified_s));
  return out;
}

std::string age_text(int64_t modified_s) {
  const auto age = static_cast<double>(std::max<int64_t>(0, std::time(nullptr) - modified_s));
  if (age < 60) return "just now";
  if (age < 3600) return fmt::format("{:.0f} minutes ago", age / 60);
  if (age < 48 * 3600) return fmt::format("{:.0f} hours ago", age / 3600);
  return fmt::format("{:.0f} days ago", age / 86400);
}

/// The shared beginning of the commands: flags, help, the one model that is named.
struct Words {
  std::string model;
  bool json = false;
  bool helped = false;
};
Result<Words> parse(Flags flags, bool with_model, std::span<char* const> arguments, std::string_view json_help) {
  Words words;
  if (with_model) flags.positional("MODEL", &words.model);
  flags.add("--json", json_help, &words.json);
  TRY(flags.parse(arguments));
  words.helped = flags.help_wanted();
  if (words.helped) fmt::print("{}", flags.help());
  if (!words.helped && with_model && words.model.empty()) return Error{"name a model; quern list shows what there is"};
  return words;
}

void print_list(const std::vector<StoredModel>& models) {
  size_t widest = 4;
  for (const StoredModel& model : models) widest = std::max(widest, model.name.size());
  fmt::print("{:{}}  {:>10}  {:>10}  {:10}  {:12}  {}\n", "NAME", widest, "SIZE", "PARAMETERS", "STORED AS", "FAMILY",
             "MODIFIED");
  for (const StoredModel& model : models) {
    fmt::print("{:{}}  {:>10}  {:>10}  {:10}  {:12}  {}\n", model.name, widest, size_text(model.bytes),
               model.parameter_size, model.quantization, model.family, age_text(model.modified_s));
  }
}

void print_details(const ModelDetails& details) {
  const StoredModel& model = details.model;
  const auto line = [](std::string_view key, std::string_view value) {
    fmt::print("  {:14}{}\n", key, value.empty() ? "-" : value);
  };
  std::string capabilities;
  for (const std::string& word : details.capabilities) capabilities += (capabilities.empty() ? "" : ", ") + word;
  fmt::print("{}\n", model.name);
  line("architecture", model.family);
  line("parameters", fmt::format("{} ({})", model.parameter_size, model.parameters));
  line("context", model.context_length > 0 ? fmt::format("{} tokens", model.context_length) : "");
  line("embedding", std::to_string(model.embedding_length));
  line("stored as", fmt::format("{}, {}", model.quantization, model.format));
  line("size", fmt::format("{} ({} bytes)", size_text(model.bytes), model.bytes));
  line("capabilities", capabilities);
  line("chat template", details.chat_template.empty() ? "no" : "yes");
  line("license", details.license.substr(0, details.license.find('\n')));
  line("digest", model.digest);
  line("path", model.path);
}

}  // namespace

int list_command(std::span<char* const> arguments) {
  const auto words = parse(Flags("quern list [flags]", "quern list --json"), false, arguments, "print JSON");
  if (!words.ok()) return fail(words.error().message);
  if (words->helped) return 0;
  const auto models = HubLibrary().list();
  if (!models.ok()) return fail(models.error().message);
  if (!words->json) {
    print_list(*models);
    return 0;
  }
  Json all{Json::Array{}};
  for (const StoredModel& model : *models) all.items().push_back(json_of(model));
  fmt::print("{}\n", Json(Json::Object{{"models", all}}).dump());
  return 0;
}

int show_command(std::span<char* const> arguments) {
  const auto words =
      parse(Flags("quern show MODEL [flags]", "quern show Qwen/Qwen3-0.6B-GGUF:Q8_0"), true, arguments, "print JSON");
  if (!words.ok()) return fail(words.error().message);
  if (words->helped) return 0;
  const auto details = HubLibrary().show(words->model);
  if (!details.ok()) return fail(details.error().message);
  if (!words->json) {
    print_details(*details);
    return 0;
  }
  Json out = json_of(details->model);
  Json capabilities{Json::Array{}};
  for (const std::string& word : details->capabilities) capabilities.items().push_back(Json(word));
  out.set("license", Json(details->license)).set("capabilities", std::move(capabilities));
  out.set("chat_template", Json(details->chat_template)).set("config", details->config);
  fmt::print("{}\n", out.dump());
  return 0;
}

int rm_command(std::span<char* const> arguments) {
  const auto words = parse(Flags("quern rm MODEL [flags]", "quern rm Qwen/Qwen3-0.6B-GGUF:Q8_0"), true, arguments,
                           "print what was removed as JSON");
  if (!words.ok()) return fail(words.error().message);
  if (words->helped) return 0;
  HubLibrary library;
  const auto model = library.find(words->model);
  if (!model.ok()) return fail(model.error().message);
  const Status removed = library.remove(model->name);
  if (!removed.ok()) return fail(removed.error().message);
  if (words->json) {
    fmt::print("{}\n", json_of(*model).dump());
  } else {
    fmt::print("removed {}, {}\n", model->name, size_text(model->bytes));
  }
  return 0;
}

}  // namespace quern
