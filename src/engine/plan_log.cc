#include "engine/plan_log.h"

#include <limits>
#include <utility>
#include <vector>

#include "base/json.h"

namespace quern {

namespace {

Json numbers(const std::vector<int32_t>& values) {
  Json::Array array;
  array.reserve(values.size());
  for (const int32_t value : values) array.emplace_back(int64_t{value});
  return array;
}

Json words(const TokenMask::Words& values) {
  Json::Array array;
  for (const uint32_t value : values) array.emplace_back(int64_t{value});
  return array;
}

/// 64 bits without a sign, as the signed number of the same bits.
Json bits(uint64_t value) { return static_cast<int64_t>(value); }

Json::Object request_object(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  Json::Array bias;
  for (const auto& [token, value] : sampling.logit_bias) {
    bias.emplace_back(Json::Array{int64_t{token}, static_cast<double>(value)});
  }
  Json::Array bad_words;
  for (const std::vector<int32_t>& word : sampling.bad_words) bad_words.push_back(numbers(word));
  return {{"id", bits(index(request.id))},
          {"prompt", numbers(request.prompt)},
          {"output", static_cast<int>(request.output)},
          {"max_tokens", request.max_tokens},
          {"min_tokens", request.min_tokens},
          {"end_tokens", numbers(request.end_tokens)},
          {"stop_tokens", numbers(request.stop_tokens)},
          {"cache_salt", bits(request.cache_salt)},
          {"adapter", request.adapter},
          {"second_text", request.second_text},
          {"dimensions", request.dimensions},
          {"normalize", request.normalize},
          {"masked", request.mask != nullptr},
          {"temperature", static_cast<double>(sampling.temperature)},
          {"top_p", static_cast<double>(sampling.top_p)},
          {"min_p", static_cast<double>(sampling.min_p)},
          {"top_k", sampling.top_k},
          {"typical_p", static_cast<double>(sampling.typical_p)},
          {"presence_penalty", static_cast<double>(sampling.presence_penalty)},
          {"frequency_penalty", static_cast<double>(sampling.frequency_penalty)},
          {"repetition_penalty", static_cast<double>(sampling.repetition_penalty)},
          {"repeat_last_n", sampling.repeat_last_n},
          {"logit_bias", std::move(bias)},
          {"bad_words", std::move(bad_words)},
          {"not_first", numbers(sampling.not_first)},
          {"allowed", sampling.allowed ? words(*sampling.allowed) : Json()},
          {"seed", bits(sampling.seed)},
          {"logprobs", sampling.logprobs},
          {"prompt_logprobs", sampling.prompt_logprobs},
          {"logprob_ids", numbers(sampling.logprob_ids)},
          {"tell_logits", sampling.tell_logits},
          {"tell_processed", sampling.tell_processed}};
}

/// Reads typed members; remembers the first one that is not as it must be.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  int64_t integer(std::string_view key, int64_t least, int64_t most) {
    const Json* value = object_.find(key);
    if (value == nullptr || !value->is_integer() || value->as_integer() < least || value->as_integer() > most) {
      fail(key);
      return least;
    }
    return value->as_integer();
  }
  int32_t number(std::string_view key, int32_t least = 0) {
    return static_cast<int32_t>(integer(key, least, std::numeric_limits<int32_t>::max()));
  }
  uint64_t bits(std::string_view key) {
    return static_cast<uint64_t>(
        integer(key, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  }
  float real(std::string_view key) {
    const auto value = object_.number(key);
    if (!value) fail(key);
    return static_cast<float>(value.value_or(0));
  }
  bool present(std::string_view key) const { return object_.present(key) != nullptr; }
  bool boolean(std::string_view key) {
    const auto value = object_.boolean(key);
    if (!value) fail(key);
    return value.value_or(false);
  }
  std::string string(std::string_view key) {
    auto value = object_.string(key);
    if (!value) fail(key);
    return value ? std::move(*value) : std::string();
  }
  const Json::Array& array(std::string_view key) {
    static const Json::Array empty;
    const Json* value = object_.find(key);
    if (value == nullptr || !value->is_array()) {
      fail(key);
      return empty;
    }
    return value->items();
  }
  std::vector<int32_t> numbers(std::string_view key) { return numbers<int32_t>(key, array(key)); }
  std::vector<std::vector<int32_t>> lists(std::string_view key) {
    std::vector<std::vector<int32_t>> values;
    for (const Json& item : array(key)) {
      if (!item.is_array()) fail(key);
      values.push_back(item.is_array() ? numbers<int32_t>(key, item.items()) : std::vector<int32_t>());
    }
    return values;
  }
  std::vector<uint32_t> words(std::string_view key) { return numbers<uint32_t>(key, array(key)); }

  void fail(std::string_view key) {
    if (!error_) error_ = Error{"plan log: \"" + std::string(key) + "\" is missing or not as it must be"};
  }
  void take(const Reader& other) {
    if (!error_ && other.error_) error_ = other.error_;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  template <typename T>
  std::vector<T> numbers(std::string_view key, const Json::Array& items) {
    std::vector<T> values;
    for (const Json& item : items) {
      const bool fits = item.is_integer() && item.as_integer() >= 0 &&
                        item.as_integer() <= static_cast<int64_t>(std::numeric_limits<T>::max());
      if (!fits) fail(key);
      values.push_back(fits ? static_cast<T>(item.as_integer()) : T{});
    }
    return values;
  }

  const Json& object_;
  std::optional<Error> error_;
};

/// Stands for a constraint whose masks are in the log.
class LoggedMask final : public TokenMask {
 public:
  void advance(std::vector<int32_t>, std::function<void(std::optional<Words>)> done) override { done(std::nullopt); }
  void rollback(int) override {}
};

std::shared_ptr<const Request> read_request(Reader& reader) {
  Request request;
  request.id = RequestId{reader.bits("id")};
  request.prompt = reader.numbers("prompt");
  request.output = static_cast<OutputKind>(reader.integer("output", 0, static_cast<int64_t>(OutputKind::scores)));
  request.max_tokens = reader.number("max_tokens");
  request.min_tokens = reader.number("min_tokens");
  request.end_tokens = reader.numbers("end_tokens");
  request.stop_tokens = reader.numbers("stop_tokens");
  request.cache_salt = reader.bits("cache_salt");
  request.adapter = reader.number("adapter");
  request.second_text = reader.number("second_text");
  request.dimensions = reader.number("dimensions");
  request.normalize = reader.boolean("normalize");
  if (reader.boolean("masked")) request.mask = std::make_shared<LoggedMask>();
  SamplingParams& sampling = request.sampling;
  sampling.temperature = reader.real("temperature");
  sampling.top_p = reader.real("top_p");
  sampling.min_p = reader.real("min_p");
  sampling.top_k = reader.number("top_k");
  sampling.typical_p = reader.real("typical_p");
  sampling.presence_penalty = reader.real("presence_penalty");
  sampling.frequency_penalty = reader.real("frequency_penalty");
  sampling.repetition_penalty = reader.real("repetition_penalty");
  sampling.repeat_last_n = reader.number("repeat_last_n", -1);
  sampling.bad_words = reader.lists("bad_words");
  sampling.not_first = reader.numbers("not_first");
  if (reader.present("allowed")) {
    sampling.allowed = std::make_shared<const std::vector<uint32_t>>(reader.words("allowed"));
  }
  sampling.seed = reader.bits("seed");
  sampling.logprobs = reader.number("logprobs", -1);
  sampling.prompt_logprobs = reader.number("prompt_logprobs", -1);
  sampling.logprob_ids = reader.numbers("logprob_ids");
  sampling.tell_logits = reader.boolean("tell_logits");
  sampling.tell_processed = reader.boolean("tell_processed");
  for (const Json& pair : reader.array("logit_bias")) {
    const bool fits =
        pair.is_array() && pair.items().size() == 2 && pair.items()[0].is_integer() && pair.items()[1].is_number();
    if (!fits) {
      reader.fail("logit_bias");
      break;
    }
    sampling.logit_bias.emplace_back(static_cast<int32_t>(pair.items()[0].as_integer()),
                                     static_cast<float>(pair.items()[1].as_number()));
  }
  return std::make_shared<const Request>(std::move(request));
}

StepPlan read_plan(Reader& reader) {
  StepPlan plan;
  plan.step = reader.bits("plan");
  for (const Json& item : reader.array("starts")) {
    Reader start(item);
    plan.starts.push_back({RowId{start.number("row")}, read_request(start), start.numbers("tokens")});
    reader.take(start);
  }
  for (const Json& item : reader.array("pages")) {
    Reader grant(item);
    plan.pages.push_back(
        {RowId{grant.number("row")}, grant.number("group"), grant.number("index"), PageId{grant.number("page")}});
    reader.take(grant);
  }
  for (const Json& item : reader.array("copies")) {
    Reader copy(item);
    plan.copies.push_back(
        {copy.number("group"), PageId{copy.number("from")}, PageId{copy.number("to")}, copy.number("tokens")});
    reader.take(copy);
  }
  for (const Json& item : reader.array("states")) {
    Reader copy(item);
    StateCopy& state = plan.states.emplace_back();
    state.row = RowId{copy.number("row")};
    state.restores = copy.boolean("restores");
    for (const int32_t page : copy.numbers("pages")) state.pages.push_back(PageId{page});
    reader.take(copy);
  }
  for (const Json& item : reader.array("slices")) {
    Reader reads(item);
    Slice& slice = plan.slices.emplace_back();
    slice.row = RowId{reads.number("row")};
    slice.begin = reads.number("begin", -1);
    slice.count = reads.number("count", 1);
    slice.drafts = reads.numbers("drafts");
    slice.samples = reads.boolean("samples");
    slice.masked = reads.boolean("masked");
    slice.finishes_prompt_output = reads.boolean("finishes");
    slice.score_begin = reads.number("score_begin");
    slice.score_end = reads.number("score_end");
    const bool scored_inside =
        slice.scores() >= 0 &&
        (slice.scores() == 0 ||
         (slice.score_begin >= slice.begin && slice.score_end <= slice.begin + slice.count && !slice.decoding()));
    if (!scored_inside) reads.fail("score_end");
    if (slice.decoding() && slice.count != 1 + static_cast<int32_t>(slice.drafts.size())) reads.fail("drafts");
    reader.take(reads);
  }
  return plan;
}

StepMasks read_masks(Reader& reader) {
  StepMasks masks;
  masks.step = reader.bits("masks");
  for (const Json& item : reader.array("rows")) {
    Reader row(item);
    RowMask& mask = masks.rows.emplace_back();
    mask.row = RowId{row.number("row")};
    if (item.present("words") != nullptr) {
      mask.words = row.words("words");
    }
    reader.take(row);
  }
  return masks;
}

StepResult read_result(Reader& reader) {
  StepResult result;
  result.step = reader.bits("result");
  result.device_us = reader.integer("device_us", 0, std::numeric_limits<int64_t>::max());
  for (const Json& item : reader.array("slices")) {
    Reader reads(item);
    SliceResult& slice = result.slices.emplace_back();
    slice.tokens = reads.numbers("tokens");
    slice.error = reads.string("error");
    for (const Json& value : reads.array("vector")) {
      if (!value.is_number()) reads.fail("vector");
      slice.vector.push_back(value.is_number() ? static_cast<float>(value.as_number()) : 0.0F);
    }
    reader.take(reads);
  }
  return result;
}

template <typename T>
Result<PlanLogEntry> checked(const Reader& reader, T entry) {
  if (reader.error()) return *reader.error();
  return PlanLogEntry(std::move(entry));
}

}  // namespace

std::string plan_log_line(const StepPlan& plan) {
  Json::Array starts;
  for (const RowStart& start : plan.starts) {
    Json object = request_object(*start.request);
    object.set("row", index(start.row)).set("tokens", numbers(start.tokens));
    starts.push_back(std::move(object));
  }
  Json::Array pages;
  for (const PageGrant& grant : plan.pages) {
    pages.emplace_back(Json::Object{
        {"row", index(grant.row)}, {"group", grant.group}, {"index", grant.index}, {"page", index(grant.page)}});
  }
  Json::Array copies;
  for (const PageCopy& copy : plan.copies) {
    copies.emplace_back(Json::Object{
        {"group", copy.group}, {"from", index(copy.from)}, {"to", index(copy.to)}, {"tokens", copy.tokens}});
  }
  Json::Array states;
  for (const StateCopy& copy : plan.states) {
    std::vector<int32_t> ids;
    for (const PageId page : copy.pages) ids.push_back(index(page));
    states.emplace_back(Json::Object{{"row", index(copy.row)}, {"restores", copy.restores}, {"pages", numbers(ids)}});
  }
  Json::Array slices;
  for (const Slice& slice : plan.slices) {
    slices.emplace_back(Json::Object{{"row", index(slice.row)},
                                     {"begin", slice.begin},
                                     {"count", slice.count},
                                     {"drafts", numbers(slice.drafts)},
                                     {"samples", slice.samples},
                                     {"masked", slice.masked},
                                     {"finishes", slice.finishes_prompt_output},
                                     {"score_begin", slice.score_begin},
                                     {"score_end", slice.score_end}});
  }
  return Json(Json::Object{{"plan", bits(plan.step)},
                           {"starts", std::move(starts)},
                           {"pages", std::move(pages)},
                           {"copies", std::move(copies)},
                           {"states", std::move(states)},
                           {"slices", std::move(slices)}})
      .dump();
}

std::string plan_log_line(const StepMasks& masks) {
  Json::Array rows;
  for (const RowMask& mask : masks.rows) {
    rows.emplace_back(Json::Object{{"row", index(mask.row)}, {"words", mask.words ? words(*mask.words) : Json()}});
  }
  return Json(Json::Object{{"masks", bits(masks.step)}, {"rows", std::move(rows)}}).dump();
}

std::string plan_log_line(const StepResult& result) {
  Json::Array slices;
  for (const SliceResult& slice : result.slices) {
    Json::Array vector;
    for (const float value : slice.vector) vector.emplace_back(static_cast<double>(value));
    slices.emplace_back(
        Json::Object{{"tokens", numbers(slice.tokens)}, {"vector", std::move(vector)}, {"error", slice.error}});
  }
  return Json(Json::Object{
                  {"result", bits(result.step)}, {"device_us", result.device_us}, {"slices", std::move(slices)}})
      .dump();
}

Result<PlanLogEntry> parse_plan_log_line(std::string_view line) {
  ASSIGN_OR_RETURN(const Json document, Json::parse(line));
  Reader reader(document);
  if (document.has("plan")) {
    StepPlan plan = read_plan(reader);
    return checked(reader, std::move(plan));
  }
  if (document.has("masks")) {
    StepMasks masks = read_masks(reader);
    return checked(reader, std::move(masks));
  }
  if (document.has("result")) {
    StepResult result = read_result(reader);
    return checked(reader, std::move(result));
  }
  return Error{"plan log: a line is neither a plan, nor masks, nor a result"};
}

}  // namespace quern
