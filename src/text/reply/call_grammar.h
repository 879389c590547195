// CallGrammar: what dialects make structural tags of: the tools, and markers as the tokens or texts that they are. Then
// the grammar of a whole reply. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/constraint.h"
#include "text/constraint/tags.h"
#include "text/reply/tool.h"
#include "text/tokenizer.h"

namespace quern {

class ReplyFormat;
struct ReplyOptions;

class CallGrammar {
 public:
  CallGrammar(const std::vector<Tool>& tools, const Tokenizer& tokenizer) : tools_(tools), tokenizer_(tokenizer) {}

  const std::vector<Tool>& tools() const { return tools_; }
  bool in_vocabulary(std::string_view marker) const { return tokenizer_.id_of(marker).has_value(); }
  /// A marker as the edge of a tag: its id when it is a special token, else its text.
  tags::Edge edge(std::string_view marker) const;
  /// A marker in the middle of a content.
  Json part(std::string_view marker) const;
  /// The schema of a tool's arguments.
  static Json schema(const Tool& tool);
  /// `begin` `before` arguments `after` `end`; markers may be special tokens or "".
  Json tag(std::string_view begin, const std::string& before, Json arguments, const std::string& after,
           std::string_view end) const;

 private:
  const std::vector<Tool>& tools_;
  const Tokenizer& tokenizer_;
};

/// How the calls of a dialect stand in a reply.
struct CallTags {
  std::vector<tags::Edge> triggers = {};  // no text has them but calls
  Json::Array tags = {};
  Json before = Json();     // what may come first, when reasoning is part of the dialect
  Json::Array forced = {};  // instead of `tags` where calls are forced: nothing but these, on lines of their own
  Json reply = Json();      // instead of `tags` where they are not: any reply
  bool complete = true;     // there are no calls but those that a trigger begins
};

/// {"name": NAME, `key`: ARGUMENTS}, for dialects that have no marker: what names a tool and its arguments so, in one
/// of the usual layouts, is a call.
CallTags plain_objects(const CallGrammar& of, std::string_view key);
/// [{"name": NAME, "arguments": ARGUMENTS}, ...] without the brackets.
Json object_list(const CallGrammar& of);

struct ReplyGrammar {
  std::string text;  // the description of a structural tag
  bool sure = true;  // whatever begins a call is one
};

/// Free text, with a grammar from the start of a call on; or, when calls are `forced`, at least one call and no text
/// before. Nothing when the dialect has no grammar, or none that can wait for calls to start.
std::optional<ReplyGrammar> reply_grammar(const ReplyFormat& format, const Tokenizer& tokenizer,
                                          const ReplyOptions& options, bool forced);

/// What a constraint says, after the reasoning of a model that thinks; nothing when none does, or for tags.
std::optional<std::string> reasoned_grammar(const ReplyFormat& format, const Tokenizer& tokenizer, bool opened,
                                            const ConstraintSpec& constraint);

}  // namespace quern
