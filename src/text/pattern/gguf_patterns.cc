#include "text/pattern/gguf_patterns.h"

#include <algorithm>
#include <iterator>

#include "text/pattern/scanners.h"

namespace quern {
namespace {

using Patterns = std::string_view[];

constexpr std::string_view numbers = R"(\p{N})";
constexpr std::string_view three_digits = "[0-9][0-9][0-9]";
constexpr std::string_view ideographs = R"([一-龥ࠀ-一가-퟿]+)";

constexpr Patterns gpt2 = {gpt2_pattern};
constexpr Patterns llama3 = {llama3_pattern};
constexpr Patterns qwen2 = {qwen2_pattern};
constexpr Patterns qwen35 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns digits_gpt2 = {numbers, gpt2_pattern};
constexpr Patterns falcon = {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_pattern, three_digits};
constexpr Patterns standard = {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", three_digits};
constexpr Patterns bloom = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
// Letters with case; the Georgian letters got theirs after this vocabulary was made.
constexpr Patterns deepseek_llm = {
    R"([\r\n])", R"(\s?(?:(?![ა-ჿ])[\p{Lu}\p{Ll}\p{Lt}])+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", ideographs,
    R"(\p{N}+)"};
constexpr Patterns deepseek_coder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", ideographs, numbers};
constexpr Patterns deepseek_v3 = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns o200k = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns tekken = {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                             R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                             R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

struct Named {
  GgufPreTokenizer kind;
  std::string_view names;  // separated and surrounded by spaces
};

constexpr Named known[] = {
    {{gpt2},
     " gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum trillion "
     "granite-docling "
     "exaone4 "},
    {{llama3, true, true}, " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 "},
    {{llama3}, " dbrx smaug-bpe glm4 chatglm-bpe "},
    {{qwen2}, " qwen2 deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 "},
    {{qwen35}, " qwen35 "},
    {{digits_gpt2}, " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 "},
    {{falcon}, " falcon "},
    {{standard}, " default "},
    {{bloom}, " bloom poro-chat gpt3-finnish "},
    {{deepseek_llm}, " deepseek-llm "},
    {{deepseek_coder}, " deepseek-coder "},
    {{deepseek_v3}, " deepseek-v3 hunyuan-dense joyai-llm "},
    {{o200k}, " gpt-4o llama4 kanana2 talkie minimax-m2 "},
    {{tekken, true, true}, " tekken "},
};

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  if (name.find(' ') != std::string_view::npos) return nullptr;
  const std::string wanted = " " + std::string(name) + " ";
  const auto found = std::ranges::find_if(
      known, [&](const Named& named) { return named.names.find(wanted) != std::string_view::npos; });
  return found != std::end(known) ? &found->kind : nullptr;
}

}  // namespace quern
