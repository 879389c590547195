// quern bench --url URL: a load generator for any server with the OpenAI API. Thread: main.
#pragma once

#include <span>

namespace quern {

/// Whether the words after `quern bench` name a server (--url, --base-url, --host or --port) rather than a model.
bool names_a_server(std::span<char* const> arguments);

/// Exit status: 1 when nothing could be sent, or every request failed.
int bench_url_command(std::span<char* const> arguments);

}  // namespace quern
