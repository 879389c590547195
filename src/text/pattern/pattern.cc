#include "text/pattern/pattern.h"

#include <array>
#include <string>

#include "text/pattern/scanners.h"
#include "text/pattern/unicode.h"

namespace quern {
namespace {

class Literal final : public Pattern {
 public:
  explicit Literal(std::string wanted) : wanted_(std::move(wanted)) {}
  Status find_all(std::string_view text, std::vector<Span>& matches) const override {
    if (wanted_.empty()) return {};
    for (size_t at = text.find(wanted_); at != std::string_view::npos; at = text.find(wanted_, at + wanted_.size())) {
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + wanted_.size())});
    }
    return {};
  }

 private:
  std::string wanted_;
};

class Expression final : public Pattern {
 public:
  explicit Expression(Regex regex) : regex_(std::move(regex)) {}
  Status find_all(std::string_view text, std::vector<Span>& matches) const override {
    return regex_.find_all(text, matches);
  }
  bool is_linear() const override { return false; }

 private:
  Regex regex_;
};

class Scanned final : public Pattern {
 public:
  explicit Scanned(Scanner scanner) : scanner_(scanner) {}
  Status find_all(std::string_view text, std::vector<Span>& matches) const override {
    scanner_(text, matches);
    return {};
  }

 private:
  Scanner scanner_;
};

class Characters final : public Pattern {
 public:
  explicit Characters(bool (*belongs)(char32_t)) : belongs_(belongs) {
    for (size_t c = 0; c < ascii_.size(); ++c) ascii_[c] = belongs(static_cast<char32_t>(c));
  }
  Status find_all(std::string_view text, std::vector<Span>& matches) const override {
    for (uint32_t at = 0; at < text.size();) {
      if (const auto byte = static_cast<unsigned char>(text[at]); byte < ascii_.size()) {
        if (ascii_[byte]) matches.push_back({at, at + 1});
        ++at;
        continue;
      }
      const Character character = decode_utf8(text.data() + at);
      if (belongs_(character.code)) matches.push_back({at, at + character.length});
      at += character.length;
    }
    return {};
  }

 private:
  bool (*belongs_)(char32_t);
  std::array<bool, 128> ascii_{};
};

}  // namespace

Result<std::unique_ptr<const Pattern>> Pattern::from_json(const Json* json) {
  if (json != nullptr) {
    if (const auto text = json->string("String")) return literal(*text);
    if (const auto text = json->string("Regex")) return regex(*text);
  }
  return Error{"tokenizer.json: a pattern is neither {\"String\": ...} nor {\"Regex\": ...}"};
}

std::unique_ptr<const Pattern> Pattern::literal(std::string text) { return std::make_unique<Literal>(std::move(text)); }

Result<std::unique_ptr<const Pattern>> Pattern::regex(std::string_view regex) {
  using Made = std::unique_ptr<const Pattern>;
  if (regex == R"(\p{N})") return characters(is_number);
  if (const Scanner scanner = scanner_for(regex)) return Made(std::make_unique<Scanned>(scanner));
  ASSIGN_OR_RETURN(Regex compiled, Regex::compile(regex));
  return Made(std::make_unique<Expression>(std::move(compiled)));
}

std::unique_ptr<const Pattern> Pattern::characters(bool (*belongs)(char32_t code)) {
  return std::make_unique<Characters>(belongs);
}

}  // namespace quern
