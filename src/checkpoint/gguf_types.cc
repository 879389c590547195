#include "checkpoint/gguf_types.h"

#include <algorithm>
#include <fmt/format.h>

namespace quern {
namespace {

constexpr GgufTensorType types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

struct NamedId {
  uint32_t id;
  std::string_view name;
};
/// That llama.cpp once had.
constexpr NamedId removed[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};
/// Of ik_llama.cpp, whose numbers begin here.
constexpr uint32_t first_of_ik = 97;
constexpr uint32_t first_interleaved_of_ik = 202;
constexpr NamedId of_ik[] = {
    {133, "Q6_0"},   {134, "IQ1_BN"}, {135, "IQ2_BN"}, {137, "IQ2_K"},  {138, "IQ3_K"},   {139, "IQ4_K"},
    {140, "IQ5_K"},  {141, "IQ6_K"},  {144, "IQ4_KS"}, {145, "IQ2_KS"}, {146, "IQ4_KSS"}, {152, "IQ5_KS"},
    {153, "IQ2_KT"}, {154, "IQ3_KT"}, {155, "IQ4_KT"}, {156, "IQ3_KS"}, {157, "IQ2_KL"},  {158, "IQ1_KT"},
};

template <size_t Count>
std::string_view name_of(const NamedId (&names)[Count], uint32_t id) {
  const auto* const found =
      std::find_if(std::begin(names), std::end(names), [&](const NamedId& named) { return named.id == id; });
  return found == std::end(names) ? std::string_view() : found->name;
}

}  // namespace

const GgufTensorType* find_gguf_type(uint32_t id) {
  const auto* const found =
      std::find_if(std::begin(types), std::end(types), [&](const GgufTensorType& type) { return type.id == id; });
  return found == std::end(types) ? nullptr : found;
}

std::string unknown_gguf_type(uint32_t id) {
  const std::string_view gone = name_of(removed, id);
  if (!gone.empty()) {
    return fmt::format("has type {} ({}), which GGUF no longer has; convert the model again, for instance to Q4_0",
                       gone, id);
  }
  if (id < first_of_ik) return fmt::format("has the unknown type {}", id);
  const std::string_view name = name_of(of_ik, id);
  const std::string which = !name.empty()                   ? fmt::format("{} ({})", name, id)
                            : id >= first_interleaved_of_ik ? fmt::format("{} (with interleaved rows)", id)
                                                            : fmt::format("{}", id);
  return fmt::format("has type {}, which only ik_llama.cpp has; use a file of llama.cpp's types", which);
}

}  // namespace quern
