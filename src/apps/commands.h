// The commands of the quern program: each gets the words after its name and returns the exit status.
#pragma once

#include <span>
#include <string_view>

namespace quern {

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(std::span<char* const> arguments);
};

std::span<const Command> commands();

/// The command of that name or alias; nullptr when there is none.
const Command* find_command(std::string_view name);

int bench_command(std::span<char* const> arguments);
int describe_command(std::span<char* const> arguments);
int doctor_command(std::span<char* const> arguments);
int embed_command(std::span<char* const> arguments);
int list_command(std::span<char* const> arguments);
int perplexity_command(std::span<char* const> arguments);
int ps_command(std::span<char* const> arguments);
int batch_command(std::span<char* const> arguments);
int pull_command(std::span<char* const> arguments);
int replay_command(std::span<char* const> arguments);
int rm_command(std::span<char* const> arguments);
int run_command(std::span<char* const> arguments);
int serve_command(std::span<char* const> arguments);
int show_command(std::span<char* const> arguments);
int stop_command(std::span<char* const> arguments);
int tokenize_command(std::span<char* const> arguments);

/// Prints "quern: MESSAGE" to standard error and returns 1.
int fail(std::string_view message);

inline constexpr std::string_view quern_version = "0.1.0";

}  // namespace quern
