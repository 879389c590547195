// quern describe: what a model is, from its files alone.
#include <fmt/format.h>
#include <map>
#include <string>

#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/loader_text.h"
#include "model/families/family.h"
#include "text/reply/reply_format.h"

namespace quern {
namespace {

std::string shape_text(const StoredTensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

void print_tensors(const Checkpoint& checkpoint, bool all) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_type;  // count, bytes
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    auto& [count, bytes] = by_type[tensor.type];
    ++count;
    bytes += static_cast<int64_t>(tensor.bytes.size());
    if (all) fmt::print("  {:60} {:6} {}\n", tensor.name, tensor.type, shape_text(tensor));
  }
  for (const auto& [type, total] : by_type) {
    fmt::print("  {:8}{:6} tensors{:>16} bytes\n", type, total.first, total.second);
  }
}

void print_text_side(const Checkpoint& checkpoint, const InstanceOptions& options) {
  const auto tokenizer = load_tokenizer(checkpoint, options.tokenizer);
  fmt::print("\ntokenizer: {}\n", tokenizer.ok() ? (*tokenizer)->description() : tokenizer.error().message);
  const auto chat = load_chat_template(checkpoint, options.chat_template);
  if (!chat.ok()) {
    fmt::print("chat template: {}\n", chat.error().message);
  } else if (!*chat) {
    fmt::print("chat template: none; prompts are continued as they are\n");
  } else {
    fmt::print("chat template: {} characters\n", (*chat)->source().size());
    const auto format = tokenizer.ok() ? ReplyFormat::make("", "", (*chat)->source_for_tools(), **tokenizer)
                                       : Result<ReplyFormat>(ReplyFormat());
    if (format.ok() && format->dialect() != nullptr) fmt::print("{}\n", format->description());
  }
}

}  // namespace

int describe_command(std::span<char* const> arguments) {
  InstanceOptions options;
  options.task = "auto";
  bool tensors = false;
  Flags flags("quern describe [MODEL] [flags]", "quern describe model.gguf --tensors");
  flags.positional("MODEL", &options.model);
  flags.add("--tensors", "list every tensor", &tensors);
  flags.add("--tokenizer", "PATH", "another tokenizer", &options.tokenizer);
  flags.add("--chat-template", "FILE", "another chat template", &options.chat_template);
  flags.add("--hf-overrides", "JSON", "laid over config.json", &options.hf_overrides);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  auto opened = open_model(options);
  if (!opened.ok()) return fail(opened.error().message);
  fmt::print("{}\n\n{}\ntensors\n", opened->checkpoint->path(), describe(opened->plan->spec));
  print_tensors(*opened->checkpoint, tensors);
  print_text_side(*opened->checkpoint, options);
  fmt::print("\nmemory on {}\n{}", opened->device->description(), describe(opened->memory));
  return 0;
}

}  // namespace quern
