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
  return ChatTemplate(std::make_shared<const Program>(Program{std::string(source), std::move(parsed)}));
}

Status ChatTemplate::add(const std::string& name, std::string_view source) {
  ASSIGN_OR_RETURN(ChatTemplate other, parse(source));
  named_[name] = std::make_shared<const ChatTemplate>(std::move(other));
  named_.try_emplace("default", std::shared_ptr<const ChatTemplate>(new ChatTemplate(program_)));
  return {};
}

const ChatTemplate* ChatTemplate::named(std::string_view name) const {
  const auto found = named_.find(name);
  return found != named_.end() ? found->second.get() : nullptr;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& [name, other] : named_) names.push_back(name);
  return names;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::vector<TextPiece>> ChatTemplate::render(const Json& variables, const std::vector<std::string>& trusted,
                                                    const TemplateLimits& limits,
                                                    std::optional<int64_t> unix_time) const {
  const Json* tools = variables.present("tools");
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->items().empty();
  return Renderer(program_for(has_tools).parsed, limits, unix_time).run(variables, trusted);
}

const std::string& ChatTemplate::source_for(bool tools) const { return program_for(tools).source; }

const ChatTemplate::Program& ChatTemplate::program_for(bool tools) const {
  const ChatTemplate* const for_tools = tools ? named("tool_use") : nullptr;
  return for_tools != nullptr ? *for_tools->program_ : *program_;
}

std::string join(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace quern
