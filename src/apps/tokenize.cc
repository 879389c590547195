// quern tokenize: text to token ids.
#include <fmt/format.h>
#include <string>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/hub/resolve.h"
#include "apps/instance.h"
#include "apps/loader_text.h"
#include "base/clock.h"

namespace quern {
namespace {

std::string read_standard_input() {
  std::string text;
  char block[1 << 16];
  for (ssize_t got = 0; (got = ::read(STDIN_FILENO, block, sizeof block)) > 0;)
    text.append(block, static_cast<size_t>(got));
  return text;
}

}  // namespace

int tokenize_command(std::span<char* const> arguments) {
  std::string model;
  std::string tokenizer_path;
  std::string text;
  bool show_text = false;
  bool special = false;
  bool count = false;
  bool no_bos = false;
  Flags flags("quern tokenize MODEL [TEXT] [flags]    (without TEXT: standard input)",
              "quern tokenize model.gguf \"Hello world\" --show");
  flags.positional("MODEL", &model);
  flags.positional("TEXT", &text);
  flags.add("--tokenizer", "PATH", "another tokenizer", &tokenizer_path);
  flags.add("--show", "one token per line with its text", &show_text);
  flags.add("--count", "only the number of tokens and the speed", &count);
  flags.add("--special", "special tokens written in the text count as such", &special);
  flags.add("--no-bos", "add no begin-of-text token", &no_bos);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  if (model.empty()) return fail("name a model: quern tokenize MODEL [TEXT]");
  const auto found = find_model(model, "");
  if (!found.ok()) return fail(found.error().message);
  auto checkpoint = Checkpoint::open(found->path);
  if (!checkpoint.ok()) return fail(checkpoint.error().message);
  auto tokenizer = load_tokenizer(**checkpoint, tokenizer_path);
  if (!tokenizer.ok()) return fail(tokenizer.error().message);
  if (text.empty()) text = read_standard_input();

  const int64_t start = now_us();
  const auto ids = (*tokenizer)->encode(text, {.add_special = !no_bos, .parse_special = special});
  const double seconds = seconds_since(start);
  if (!ids.ok()) return fail(ids.error().message);
  if (count) {
    fmt::print("{} tokens, {} bytes, {:.1f} MB/s\n", ids->size(), text.size(),
               static_cast<double>(text.size()) * 1e-6 / seconds);
  } else if (show_text) {
    for (const int32_t id : *ids) fmt::print("{:8}  {}\n", id, Json((*tokenizer)->token_bytes(id)).dump());
  } else {
    fmt::print("[{}]\n", fmt::join(*ids, ","));
  }
  return 0;
}

}  // namespace quern
