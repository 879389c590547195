// Dialect: how a family of models spells tool calls. Constructing one registers it. Immutable; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/reply/call_grammar.h"
#include "text/reply/reply_reader.h"

namespace quern {

/// How calls are told apart in later messages.
enum class CallIds : uint8_t {
  openai,   // "call_" and 24 letters and digits
  nine,     // 9 letters and digits
  counted,  // "functions.NAME:N", N counting the calls of the conversation
};

struct Dialect {
  std::string_view name;  // as vLLM calls it
  std::vector<std::string_view> more_names = {};
  /// How sure a chat template's text makes us that its model speaks this; 0: not at all.
  int (*spoken_in)(std::string_view chat_template) = nullptr;
  /// All markers that a vocabulary may have as special tokens.
  std::vector<std::string_view> markers = {};
  /// What calls begin with.
  std::vector<Sought> starts = {};
  /// Reads one call, or several that stand together, after the start number `start`; false when there is none, and what
  /// was consumed is content.
  Reading<bool> (*read)(ReplyReader& in, int start) = nullptr;
  /// Instead of all that: reads the whole reply, reasoning included.
  Reading<bool> (*read_reply)(ReplyReader& in) = nullptr;
  CallIds ids = CallIds::openai;
  /// Calls as parts of a grammar; nullptr: there is none. Without triggers it serves only where calls are forced.
  CallTags (*grammar)(const CallGrammar& of) = nullptr;
};

struct KnownDialect {
  explicit KnownDialect(Dialect dialect);
};

/// By any of its names; an error lists the known ones.
Result<const Dialect*> find_dialect(std::string_view name);
/// The dialect that a chat template shows; nullptr when it shows none.
const Dialect* detect_dialect(std::string_view chat_template);

/// For spoken_in: `sure` when the text contains all of these.
int shown(std::string_view chat_template, int sure, std::initializer_list<std::string_view> all);

}  // namespace quern
