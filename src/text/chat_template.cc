#include "text/chat_template.h"

#include <fmt/format.h>

#include "text/template/parser.h"
#include "text/template/renderer.h"

namespace quern {

namespace {
constexpr size_t kMaxSourceBytes = 1 << 20;  // the largest known template has 20 kB
}

struct ChatTemplate::Program {
  std::string source;
  TemplateProgram parsed;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Error{
        fmt::format("the chat template has {} bytes, at most {} are accepted", source.size(), kMaxSourceBytes)};
  }
  ASSIGN_OR_RETURN(TemplateProgram parsed, parse_template(source));
  return ChatTemplate(std::make_unique<const Program>(Program{std::string(source), std::move(parsed)}));
}

Status ChatTemplate::use_for_tools(std::string_view source) {
  ASSIGN_OR_RETURN(ChatTemplate other, parse(source));
  for_tools_ = std::move(other.program_);
  return {};
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::vector<TextPiece>> ChatTemplate::render(const Json& variables, const std::vector<std::string>& trusted,
                                                    const TemplateLimits& limits,
                                                    std::optional<int64_t> unix_time) const {
  const Json* tools = for_tools_ ? variables.present("tools") : nullptr;
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->items().empty();
  return Renderer((has_tools ? for_tools_ : program_)->parsed, limits, unix_time).run(variables, trusted);
}

const std::string& ChatTemplate::source() const { return program_->source; }
const std::string& ChatTemplate::source_for_tools() const { return (for_tools_ ? for_tools_ : program_)->source; }

std::string join(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace quern
