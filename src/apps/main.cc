// The quern program: picks a command.
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <span>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "base/flags.h"
#include "tensor/device.h"

namespace quern {
namespace {

void print_help() {
  fmt::print("quern {}: serves large language models on CPUs and NVIDIA GPUs\n\nusage: quern COMMAND ...\n\n",
             quern_version);
  for (const Command& command : commands()) fmt::print("  {:12}{}\n", command.name, command.summary);
  fmt::print(
      "  {:12}{}\n\nquern help COMMAND shows its flags and an example. Without a model, the built-in default is used:\n"
      "SmolLM2-135M-Instruct, which `make run` or tools/fetch_model brings. A model is a .gguf file, a folder with\n"
      "safetensors, or ORG/NAME[:QUANTIZATION] of a hub, which is pulled when it is not here.\n",
      "help", "this text, or the help of a command");
}

int unknown_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string_view close = nearest(name, names);
  return fail(close.empty() ? fmt::format("unknown command '{}'; see quern help", name)
                            : fmt::format("unknown command '{}'; did you mean {}?", name, close));
}

int dispatch(std::span<char* const> arguments) {
  const std::string_view name = arguments.empty() ? "help" : arguments[0];
  if (name == "--version" || name == "-V" || name == "version") {
    fmt::print("quern {}\n", quern_version);
    return 0;
  }
  if (name == "help" || name == "--help" || name == "-h") {
    const std::string_view about = arguments.size() < 2 ? "help" : arguments[1];
    if (about == "help" || about == "--help" || about == "-h") {
      print_help();
      return 0;
    }
    char help[] = "--help";
    char* const only_help[] = {help};
    const Command* command = find_command(arguments[1]);
    return command == nullptr ? unknown_command(arguments[1]) : command->run(only_help);
  }
  const Command* command = find_command(name);
  return command == nullptr ? unknown_command(name) : command->run(arguments.subspan(1));
}

}  // namespace
}  // namespace quern

int main(int count, char** words) {
  try {
    return quern::dispatch({words + 1, static_cast<size_t>(count > 0 ? count - 1 : 0)});
  } catch (const quern::DeviceLost& lost) {
    return quern::fail(lost.reason);
  } catch (const std::exception& error) {
    return quern::fail(error.what());
  }
}
