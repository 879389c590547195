#include "text/reply/reply_parser.h"

#include "text/reply/reply_reader.h"

namespace quern {
namespace {

/// The reasoning, which ends at its mark, or at a special token that starts a call.
Reading<bool> read_reasoning(ReplyReader& in, const Thinking& thinking, const std::vector<Sought>& starts, int* start) {
  std::vector<Sought> ends = {{thinking.end}};
  for (const Sought& one : starts) {
    if (in.is_special(one.text)) ends.push_back(one);
  }
  in.begin_reasoning();
  const int end = co_await in.until(ends, [&in](std::string_view text) { in.reasoning(text); });
  in.end_reasoning();
  *start = -1;
  for (size_t i = 0; end > 0 && i < starts.size(); ++i) {
    if (starts[i].text == ends[static_cast<size_t>(end)].text) *start = static_cast<int>(i);
  }
  co_return true;
}

Reading<bool> read_reply(ReplyReader& in, const Dialect* dialect, const Thinking* thinking) {
  std::vector<Sought> starts;
  if (dialect != nullptr && in.wants_calls()) starts = dialect->starts;
  int start = -1;
  if (thinking != nullptr) {
    bool opened = in.starts_thinking();
    if (!opened) {
      // Space before the mark is no content; without the mark it is.
      std::string space;
      for (int c = co_await in.peek(); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = co_await in.peek()) {
        space += static_cast<char>(co_await in.next());
      }
      opened = co_await in.take(thinking->begin);
      if (!opened) in.content(space);
    } else {
      co_await in.skip_space();
      co_await in.take(thinking->begin);  // some models say it again
    }
    if (opened) co_await read_reasoning(in, *thinking, starts, &start);
  }
  while (true) {
    if (start < 0) start = co_await in.until(starts, [&in](std::string_view text) { in.content(text); });
    if (start < 0) break;
    in.begin_attempt(starts[static_cast<size_t>(start)].text);
    co_await dialect->read(in, start) ? in.end_attempt() : in.abandon();
    start = -1;
  }
  co_return true;
}

}  // namespace

struct ReplyParser::State {
  State(const ReplyFormat& format, const ReplyOptions& options)
      : reader(options, format.special_markers()),
        task(format.dialect() != nullptr && format.dialect()->read_reply != nullptr
                 ? format.dialect()->read_reply(reader)
                 : read_reply(reader, format.dialect(), format.thinking())) {
    task.start();
  }

  ReplyReader reader;
  Reading<bool> task;
};

ReplyParser::ReplyParser(const ReplyFormat& format, const ReplyOptions& options)
    : state_(std::make_unique<State>(format, options)) {}
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;
ReplyParser& ReplyParser::operator=(ReplyParser&&) noexcept = default;
ReplyParser::~ReplyParser() = default;

std::vector<ReplyPiece> ReplyParser::add(std::string_view text) {
  state_->reader.add(text);
  return state_->reader.take_pieces();
}

std::vector<ReplyPiece> ReplyParser::finish() {
  state_->reader.close();
  return state_->reader.take_pieces();
}

bool ReplyParser::done() const { return state_->reader.done(); }

bool ReplyParser::thinking() const { return state_->reader.thinking(); }

}  // namespace quern
