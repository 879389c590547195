// Protocol: whose words requests and answers use. Values.
#pragma once

#include <cstdint>

namespace quern {

enum class Protocol : uint8_t { openai, anthropic, responses, ollama, llama };

}  // namespace quern
