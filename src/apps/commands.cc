#include "apps/commands.h"

#include <cstdio>

namespace quern {

std::span<const Command> commands() {
  static constexpr Command table[] = {
      {"run", "chat with a model in the terminal, or answer one prompt", run_command},
      {"serve", "serve a model over the OpenAI API", serve_command},
      {"batch", "answer a file of requests, as in OpenAI's batch API", batch_command},
      {"pull", "bring a model here from a hub", pull_command},
      {"list", "show the models of this machine (or ls)", list_command},
      {"show", "what one of them is", show_command},
      {"rm", "remove one", rm_command},
      {"ps", "show the models that a running server has in memory", ps_command},
      {"stop", "let a running server unload one", stop_command},
      {"doctor", "what this machine has for models, and what is in their way", doctor_command},
      {"embed", "turn texts into vectors", embed_command},
      {"bench", "measure a model's speed beside this machine's limits, or load a server", bench_command},
      {"perplexity", "how well a model predicts a text, and how that differs from a saved run", perplexity_command},
      {"describe", "show what a model is: layers, tensors, tokenizer, template", describe_command},
      {"tokenize", "turn text into token ids", tokenize_command},
      {"replay", "run a log of step plans again and compare the tokens", replay_command},
  };
  return table;
}

const Command* find_command(std::string_view name) {
  if (name == "ls") name = "list";
  for (const Command& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

int fail(std::string_view message) {
  std::fprintf(stderr, "quern: %.*s\n", static_cast<int>(message.size()), message.data());
  return 1;
}

}  // namespace quern
