// Generation: a request for text that has been checked and turned into tokens; what chat and completions share. Values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/openai/errors.h"
#include "server/openai/fields.h"
#include "server/openai/tool_use.h"
#include "server/options.h"
#include "server/protocol.h"
#include "text/chat_template.h"
#include "text/constraint.h"
#include "text/reply/call_rendering.h"
#include "text/reply/reply.h"
#include "text/tokenizer.h"

namespace quern {

/// What is needed to turn text into tokens. Immutable; any thread.
struct TextModel {
  ServerOptions options;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // may be absent
  CallRendering calls;                                // of the chat template
  size_t longest_token_bytes = 1;
  TemplateLimits template_limits;

  int32_t vocab_size() const { return options.vocab_size > 0 ? options.vocab_size : tokenizer->size(); }
  /// Of one token.
  int32_t most_logprobs() const {
    return options.max_logprobs < 0 ? vocab_size() : std::min(options.max_logprobs, vocab_size());
  }
};

/// How to answer, as asked.
struct AnswerParams {
  SamplingParams sampling;
  std::optional<int64_t> seed;
  std::optional<int32_t> max_tokens;
  std::string_view limit_name = "max_tokens";  // what the request called that
  int32_t min_tokens = 0;
  int32_t n = 1;
  int32_t best_of = 1;  // answers that are made for each prompt; the n best of them are given
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;
  bool include_stop = false;
  bool ignore_eos = false;
  bool skip_special = true;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool echo = false;
  std::optional<std::string> suffix;  // what follows the text that is wanted
  std::optional<int32_t> prompt_logprobs;
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool include_reasoning = true;
  int32_t priority = 0;
  std::string cache_salt;
};

struct Prompt {
  std::vector<int32_t> tokens;
  std::string echo;                   // text that the answer starts with
  std::vector<int64_t> echo_offsets;  // where each token begins in it, in characters; only if they get logprobs
  int32_t max_tokens = 0;             // what is asked, cut to what the context holds
};

/// A rendered conversation.
struct Conversation {
  std::vector<int32_t> tokens;
  bool opens_reasoning = false;  // the template has begun the reasoning of the answer
  int64_t calls = 0;             // in its messages
};

/// How the reply of a chat is told apart; without `parsed` it is text and nothing else.
struct ReplyPlan {
  bool parsed = false;
  ToolUse tools;
  ReplyOptions options;
  int64_t earlier_calls = 0;
};

struct ResponsePlan;
class AnswerForm;

struct Generation {
  Protocol protocol = Protocol::openai;
  std::shared_ptr<const AnswerForm> form;  // of the answer; none: the protocol's
  std::string answer;                      // the whole of it, when there is nothing to generate
  bool chat = false;
  std::string model;  // as the client called it
  AnswerParams params;
  std::vector<Prompt> prompts;
  std::optional<ConstraintSpec> constraint;    // what the answer must look like
  bool constraint_optional = false;            // it only helps: the answer goes without when it cannot be compiled
  std::string constraint_param;                // the field that says so
  std::shared_ptr<const Constraint> compiled;  // once it is
  ReplyPlan reply;
  std::shared_ptr<const ResponsePlan> response;  // of that protocol
  std::vector<std::string> unknown_fields;
  std::optional<double> keep_alive_s;  // how long the model stays after the last request, from now on
  std::string request_id;              // from the body; "" when it says none

  /// Whether the logprobs of echoed prompts are told with those of the answer.
  bool echoes_logprobs() const { return !chat && params.echo && params.sampling.logprobs >= 0; }
  /// Logprobs of the prompt are wanted, in either way.
  bool scores_prompts() const { return echoes_logprobs() || params.prompt_logprobs; }
};

/// The body as a JSON object.
Checked<Json> parse_body(std::string_view body);
/// The model's name, checked; the first served one when the field is absent.
std::string read_model(Fields& fields, const ServerOptions& options);
/// How many of the best tokens have their logprobs told; -1 stands for all, where the operator allows that.
std::optional<int32_t> read_logprob_count(Fields& fields, std::string_view name, const TextModel& model);
/// Further tokens whose logprobs are told; after those of the best ones have been read.
void read_logprob_ids(Fields& fields, const TextModel& model, SamplingParams& sampling);
AnswerParams read_answer_params(Fields& fields, const TextModel& model, int32_t min_max_tokens);
/// Last: unknown fields are noted, or refused when the operator wants so.
void read_unknown(Fields& fields, const ServerOptions& options, std::vector<std::string>& unknown);

/// Refuses text that is certainly too long, before it is tokenized.
std::optional<ApiError> check_text_size(const TextModel& model, size_t bytes, const AnswerParams& params,
                                        std::string_view param);
/// Cuts max_tokens to the context, or says that the prompt does not fit. `fallback`: when nothing is asked for.
std::optional<ApiError> fit_prompt(const TextModel& model, const AnswerParams& params, std::optional<int32_t> fallback,
                                   std::string_view param, Prompt& prompt);

Checked<Generation> parse_chat(std::string_view body, const TextModel& model);
Checked<Generation> read_chat(const Json& body, const TextModel& model);
Checked<Generation> read_chat(Fields& fields, const TextModel& model);
Checked<Generation> parse_completion(std::string_view body, const TextModel& model);
Checked<Generation> read_completion(const Json& body, const TextModel& model);
Checked<Generation> read_completion(Fields& fields, const TextModel& model);

/// Messages as the template writes them.
struct Rendering {
  std::vector<TextPiece> pieces;
  bool add_special = false;
  int64_t calls = 0;  // in the messages
};
/// Reads `messages` and what concerns the template.
Checked<Rendering> render_messages(Fields& fields, const TextModel& model, const AnswerParams& params,
                                   const ToolUse& tools);
/// The same as tokens.
Checked<Conversation> render_conversation(Fields& fields, const TextModel& model, const AnswerParams& params,
                                          const ToolUse& tools);

}  // namespace quern
