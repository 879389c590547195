// ReplyReader: the text of a reply as dialects read it, and where they put what they find. Reading is awaited: a
// dialect is a coroutine that sleeps until enough text is there, so how the text was cut into pieces cannot matter. One
// thread.
#pragma once

#include <coroutine>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/reply/json_scanner.h"
#include "text/reply/reading.h"
#include "text/reply/reply.h"

namespace quern {

/// Stands before the text of a token that is special in the vocabulary; no text contains it.
inline constexpr char kSpecialMark = '\xFF';

/// Text that is looked for.
struct Sought {
  std::string_view text;
  bool at_line_start = false;
};

class ReplyReader {
  struct Waiting {
    virtual bool poll() = 0;  // true when there is a result

   protected:
    ~Waiting() = default;
  };
  template <typename Now>
  struct Wait final : Waiting {
    Wait(ReplyReader& of, Now make) : reader(of), now(std::move(make)) {}
    bool poll() override {
      result = now();
      return result.has_value();
    }
    bool await_ready() { return poll(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      reader.waiting_ = this;
      reader.sleeping_ = coroutine;
    }
    auto await_resume() { return *result; }

    ReplyReader& reader;
    Now now;
    decltype(std::declval<Now&>()()) result;
  };

 public:
  /// `specials`: the markers that are special tokens; they count as tokens only, never when spelled out.
  ReplyReader(const ReplyOptions& options, std::vector<std::string> specials);

  // For the owner.
  void add(std::string_view text);
  void close();
  std::vector<ReplyPiece> take_pieces() { return std::exchange(pieces_, {}); }
  bool done() const { return done_; }
  bool thinking() const { return thinking_; }

  // For dialects: reading.
  /// The next byte; -1 at the end of the reply.
  auto peek() {
    return wait([this]() -> std::optional<int> { return peek_now(); });
  }
  /// The same, consumed.
  auto next() {
    return wait([this]() -> std::optional<int> { return next_now(); });
  }
  /// Whether `text` comes next; then it is consumed.
  auto take(std::string_view text) {
    return wait([this, wanted = spelled(text)]() -> std::optional<bool> { return take_now(wanted); });
  }
  /// Consumes white space; the next byte after it, or -1.
  auto skip_space() {
    return wait([this]() -> std::optional<int> { return skip_space_now(); });
  }
  using Sink = std::function<void(std::string_view)>;
  /// Gives text to `sink` up to the first of `ends`, which is consumed: its index, or -1 at the end of the reply.
  auto until(std::vector<Sought> ends, Sink sink) {
    return wait([this, all = spelled(ends), to = std::move(sink)]() -> std::optional<int> { return seek(all, to); });
  }
  /// The same into a string.
  auto text_until(std::string_view end, std::string& into) {
    return wait([this, all = spelled(std::vector<Sought>{{end}}), &into]() -> std::optional<int> {
      return seek(all, [&into](std::string_view text) { into += text; });
    });
  }
  /// Consumes one JSON value; false when there is none or it is malformed.
  auto json(Sink sink) {
    return wait([this, scan = JsonScanner(), to = std::move(sink)]() mutable -> std::optional<bool> {
      return scan_now(scan, to);
    });
  }
  bool is_special(std::string_view marker) const;

  // For dialects: writing.
  void content(std::string_view text);
  void reasoning(std::string_view text);
  void begin_reasoning() { thinking_ = thought_ = true; }
  void end_reasoning();
  /// From here on what is consumed may turn out to be no call; `start` was consumed already.
  void begin_attempt(std::string_view start);
  /// It was one, or several.
  void end_attempt();
  /// It was none: what was consumed and not yet passed on is content.
  void abandon();
  void begin_call(std::string name, std::string id = {});
  void arguments(std::string_view text);
  /// As a JSON string's inside.
  void argument_text(std::string_view text);
  void end_call();
  /// A whole call.
  void call(std::string name, std::string_view all_arguments, std::string id = {});
  int32_t calls() const { return calls_; }
  const std::vector<Tool>& tools() const { return options_.tools; }
  bool wants_calls() const { return options_.calls; }
  bool eager() const { return options_.eager; }
  bool starts_thinking() const { return options_.thinking; }

 private:
  template <typename Now>
  Wait<Now> wait(Now now) {
    return Wait<Now>(*this, std::move(now));
  }

  struct Spelled {
    std::string text;
    bool at_line_start = false;
  };
  /// White space at the edges of a text is held back: at its start and end it does not count.
  struct Edges {
    std::string held;
    bool begun = false;
  };

  std::string spelled(std::string_view text) const;
  std::vector<Spelled> spelled(const std::vector<Sought>& all) const;
  std::optional<int> peek_now() const;
  std::optional<int> next_now();
  std::optional<bool> take_now(const std::string& wanted);
  std::optional<int> skip_space_now();
  std::optional<int> seek(const std::vector<Spelled>& all, const Sink& sink);
  std::optional<bool> scan_now(JsonScanner& scan, const Sink& sink);
  void consume(size_t count);
  void run();
  void put(ReplyPiece::Kind kind, Edges& edges, std::string_view text, bool trim_start);
  static void append(std::vector<ReplyPiece>& to, ReplyPiece piece);

  const ReplyOptions options_;
  const std::vector<std::string> specials_;
  std::string text_;  // what has arrived; whole characters
  std::string tail_;  // the start of one
  size_t at_ = 0;     // consumed
  bool closed_ = false;
  Waiting* waiting_ = nullptr;
  std::coroutine_handle<> sleeping_;

  std::vector<ReplyPiece> pieces_;
  Edges content_;
  Edges reasoning_;
  bool thinking_ = false;
  bool thought_ = false;  // there was reasoning, perhaps empty
  bool line_start_ = true;
  bool done_ = false;
  bool attempting_ = false;
  bool announced_ = false;         // a call was passed on that has not ended
  std::vector<ReplyPiece> draft_;  // of the attempt
  std::string raw_;                // of the attempt: consumed and not passed on
  int32_t calls_ = 0;
};

}  // namespace quern
