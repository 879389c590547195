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
constexpr Patterns qwen35 = {qwen35_pattern};
constexpr Patterns digits_gpt2 = {numbers, gpt2_pattern};
constexpr Patterns falcon = {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_pattern, three_digits};
constexpr Patterns standard = {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", three_digits};
constexpr Patterns bloom = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
// Letters with case, but for those that the list in the model's file lacks: small Armenian and newer ones, those of
// phonetics and formulas.
constexpr Patterns deepseek_llm = {
    R"([\r\n])",
    R"(\s?(?:(?![\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A790}-\x{A7FF}\x{AB30}-\x{AB6F})"
    R"(\x{10570}-\x{105BF}\x{10D50}-\x{10D8F}\x{16E40}-\x{16EFF}\x{1D400}-\x{1D7FF}\x{1DF00}-\x{1DFFF}]))"
    R"([\p{Lu}\p{Ll}\p{Lt}])+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+$)",
    ideographs,
    R"(\p{N}+)"};
constexpr Patterns deepseek_coder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", ideographs, numbers};
constexpr Patterns deepseek_v3 = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns spark = {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
                            R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
                            R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
                            numbers};
constexpr Patterns afmoe = {
    grouped_numbers_pattern,
    "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns o200k = {o200k_pattern};
constexpr Patterns tekken = {tekken_pattern};
constexpr Patterns tiny_aya = {grouped_digits_pattern, o200k_pattern};
constexpr Patterns youtu = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Han characters stand apart from all other letters.
constexpr Patterns kimi_k2 = {
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Variations of the pattern of Llama 3.
constexpr Patterns jais_2 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
    R"(\s{1,2}(?!\S)|\s{1})"};
constexpr Patterns minicpm5 = {
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)"};
constexpr Patterns bailing = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Patterns seed_coder = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns exaone_moe = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Patterns ufakzeka = {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view lines = R"([^\n]+|[\n]+)";
constexpr Patterns laguna = {lines, qwen2_pattern};

constexpr Patterns viking = {R"( ?[^(\s|.,!?…。，、।۔،)]+)", numbers};
constexpr Patterns superbpe = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr Patterns chameleon = {"<sentinel:[0-9]+>",       "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                R"([\t\n]|    |  )",       numbers,
                                R"([\p{P}!-/:-@\[-`{-~])", gpt2_pattern};
constexpr Patterns only_lines = {lines};

struct Named {
  GgufPreTokenizer kind;
  std::string_view names;  // separated and surrounded by spaces
};

constexpr Named known[] = {
    {{gpt2},
     " gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum "
     "modern-bert roberta-bpe trillion granite-docling exaone4 "},
    {{llama3, true, true}, " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano "},
    {{llama3, true}, " glm4 glm5 "},
    {{llama3}, " dbrx smaug-bpe chatglm-bpe "},
    {{jais_2}, " jais-2 "},
    {{minicpm5, true}, " minicpm5 "},
    {{bailing}, " bailingmoe bailingmoe2 llada-moe "},
    {{seed_coder}, " seed-coder "},
    {{exaone_moe}, " exaone-moe "},
    {{ufakzeka}, " ufakzeka "},
    {{qwen2}, " qwen2 deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 "},
    {{qwen35}, " qwen35 "},
    {{laguna}, " laguna "},
    {{digits_gpt2}, " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 "},
    {{falcon}, " falcon "},
    {{standard}, " default "},
    {{bloom}, " bloom poro-chat gpt3-finnish "},
    {{viking}, " viking "},
    {{superbpe}, " superbpe "},
    {{chameleon, false, true}, " chameleon "},
    {{deepseek_llm}, " deepseek-llm "},
    {{deepseek_coder}, " deepseek-coder "},
    {{deepseek_v3}, " deepseek-v3 hunyuan-dense joyai-llm hy_v4 "},
    {{spark}, " spark2_5 "},
    {{afmoe}, " afmoe "},
    {{o200k}, " gpt-4o llama4 kanana2 talkie minimax-m2 "},
    {{o200k, true}, " granite-embed-multi-97m "},
    {{tiny_aya}, " tiny_aya cohere2moe "},
    {{youtu, true}, " youtu "},
    {{kimi_k2}, " kimi-k2 "},
    {{tekken, true, true}, " tekken "},
    {{.patterns = only_lines, .add_bos = true, .characters = true, .escape_spaces = true},
     " gemma4 granite-embed-multi-311m "},
    {{.patterns = only_lines, .characters = true, .escape_spaces = true}, " sarvam-moe "},
    {{.patterns = {}, .characters = true, .drop_spaces = true}, " whitespace "},
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
