// Names of models as Ollama has them: what has no tag has the tag "latest", and case means nothing. Values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quern {

/// The version of Ollama whose API this is. Clients look at it before they use newer parts.
inline constexpr std::string_view ollama_version = "0.33.0";

/// "llama3.2" -> "llama3.2:latest"
std::string tagged(std::string_view name);
bool same_model(std::string_view a, std::string_view b);
/// Which of the served names is meant; nullptr: none.
const std::string* find_served(std::string_view name, const std::vector<std::string>& served);

}  // namespace quern
