#include <fmt/format.h>

#include "server/openai/generation.h"
#include "server/openai/structured.h"
#include "text/reply/call_grammar.h"

namespace quern {
namespace {

void read_logprobs(Fields& fields, const TextModel& model, SamplingParams& sampling) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = read_logprob_count(fields, "top_logprobs", model);
  if (top && !wanted) {
    fields.invalid("top_logprobs", "invalid_value",
                   "The 'top_logprobs' parameter is only allowed when 'logprobs' is true.");
  }
  if (wanted) sampling.logprobs = top.value_or(0);
  read_logprob_ids(fields, model, sampling);
}

/// Text is all there is: other modalities are refused by name.
void read_modalities(Fields& fields) {
  if (const Json::Array* modalities = fields.array("modalities", 8)) {
    for (const Json& modality : *modalities) {
      if (!modality.is_string()) return fields.wrong_kind("modalities", "strings", modality);
      if (modality.as_string() != "text") {
        return fields.fail(unsupported("modalities", "Unsupported parameter: this model answers with text only."));
      }
    }
  }
}

void read_rest(Fields& fields, AnswerParams& params) {
  using Kind = Fields::Kind;
  fields.ignore(Kind::boolean, {"store"});
  fields.ignore(Kind::string,
                {"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity"});
  fields.ignore(Kind::object, {"metadata", "prediction", "moderation", "prompt_cache_options"});
  fields.refuse({"audio", "web_search_options", "echo"});
  params.include_reasoning = fields.boolean("include_reasoning").value_or(true);
}

/// How the reply is read: calls are looked for when tools are wanted, reasoning whenever the model has it.
ReplyPlan plan_reply(const TextModel& model, ToolUse tools, const Conversation& conversation) {
  const ReplyFormat& format = model.options.reply_format;
  ReplyPlan plan;
  plan.parsed = tools.wanted() || format.separates_reasoning();
  plan.options.calls = tools.wanted();
  plan.options.one_call = !tools.parallel;
  plan.options.thinking = conversation.opens_reasoning;
  plan.options.tools = tools.tools;
  plan.tools = std::move(tools);
  plan.earlier_calls = conversation.calls;
  return plan;
}

/// Calls are forced by a grammar when the client wants one, and else watched by one from where the model starts a call,
/// if the dialect has such a grammar, no other constraint holds and the answer begins where the template begins one.
void constrain_calls(const TextModel& model, bool begins, Generation& generation) {
  ReplyPlan& plan = generation.reply;
  const bool forced = plan.tools.choice == ToolUse::Choice::required || plan.tools.choice == ToolUse::Choice::named;
  if (!plan.tools.wanted() || (!forced && (generation.constraint || !begins))) return;
  if (plan.tools.choice == ToolUse::Choice::named) plan.options.one_call = true;
  auto grammar = reply_grammar(model.options.reply_format, *model.tokenizer, plan.options, forced);
  if (!grammar) return;
  generation.constraint = ConstraintSpec{ConstraintSpec::Kind::structural_tag, std::move(grammar->text), {}};
  generation.constraint_param = plan.tools.legacy ? "functions" : "tools";
  generation.constraint_optional = !forced;
  plan.options.eager = grammar->sure;
}

/// A model that thinks does so before what its answer is held to.
void let_think(const TextModel& model, Generation& generation) {
  if (!generation.constraint) return;
  auto text = reasoned_grammar(model.options.reply_format, *model.tokenizer, generation.reply.options.thinking,
                               *generation.constraint);
  if (text) generation.constraint = ConstraintSpec{ConstraintSpec::Kind::structural_tag, std::move(*text), {}};
}

}  // namespace

Checked<Generation> parse_chat(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  return read_chat(json, model);
}

Checked<Generation> read_chat(const Json& body, const TextModel& model) {
  Fields fields(body);
  return read_chat(fields, model);
}

Checked<Generation> read_chat(Fields& fields, const TextModel& model) {
  Generation generation;
  generation.chat = true;
  generation.model = read_model(fields, model.options);
  generation.params = read_answer_params(fields, model, 1);
  generation.request_id = fields.string("request_id", 128).value_or("");
  read_logprobs(fields, model, generation.params.sampling);
  read_constraint(fields, generation);
  read_modalities(fields);
  ToolUse tools = read_tool_use(fields, model);
  read_rest(fields, generation.params);
  auto conversation = render_conversation(fields, model, generation.params, tools);
  read_unknown(fields, model.options, generation.unknown_fields);
  if (fields.failed()) return *fields.error();
  if (!conversation.ok()) return std::move(conversation).error();

  generation.reply = plan_reply(model, std::move(tools), conversation.value());
  let_think(model, generation);
  const bool goes_on = fields.boolean("continue_final_message").value_or(false);
  constrain_calls(model, fields.boolean("add_generation_prompt").value_or(!goes_on), generation);
  Prompt prompt;
  prompt.tokens = std::move(conversation.value().tokens);
  if (auto error = fit_prompt(model, generation.params, model.options.defaults.max_tokens, "messages", prompt))
    return *error;
  generation.prompts.push_back(std::move(prompt));
  return generation;
}

}  // namespace quern
