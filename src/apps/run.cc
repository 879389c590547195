// quern run: chat in the terminal.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/hub/resolve.h"
#include "apps/instance.h"
#include "apps/interrupt.h"
#include "apps/pending.h"
#include "base/clock.h"
#include "base/file.h"
#include "text/detokenizer.h"

namespace quern {
namespace {

struct RunOptions {
  InstanceOptions instance;
  std::string prompt;
  std::string system;
  double temperature = -1.0;  // below 0: the model's own when chatting, 0 when answering once
  double top_p = -1.0;
  int top_k = -1;
  int max_tokens = 0;  // 0: as many as the context holds
  bool verbose = false;
};

/// From the kernel: std::random_device would need a newer C library.
uint64_t random_seed() {
  uint64_t seed = 1;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = static_cast<uint64_t>(now_us());
  return seed;
}

/// Standard input by lines, which Ctrl-C can interrupt.
class Console {
 public:
  Console() : wake_(eventfd(0, EFD_CLOEXEC)) {}
  ~Console() { ::close(wake_); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void interrupt() const {
    const uint64_t one = 1;
    while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  /// The next line without its end; nothing at the end of input or when interrupted.
  std::optional<std::string> line() {
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
        std::string text = buffer_.substr(0, end);
        buffer_.erase(0, end == std::string::npos ? end : end + 1);
        return text;
      }
      if (at_end_ || !read_more()) return std::nullopt;
    }
  }

  /// All of it, without the line ends that close it: `echo` adds one that nobody meant.
  std::string everything() {
    while (!at_end_ && read_more()) {
    }
    while (buffer_.ends_with('\n') || buffer_.ends_with('\r')) buffer_.pop_back();
    return std::move(buffer_);
  }

 private:
  /// False when interrupted.
  bool read_more() {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return false;
    if (waits[1].revents != 0) return false;
    char block[4096];
    const ssize_t got = ::read(STDIN_FILENO, block, sizeof block);
    if (got > 0) buffer_.append(block, static_cast<size_t>(got));
    if (got == 0) at_end_ = true;
    return true;
  }

  int wake_;
  std::string buffer_;
  bool at_end_ = false;
};

/// A conversation with a model: prompts in, streamed text out.
class Chat {
 public:
  Chat(Instance& instance, const RunOptions& options, bool once) : instance_(instance), options_(options), once_(once) {
    if (!options.system.empty()) say("system", options.system);
  }

  /// Prints the answer as it comes. An error leaves the conversation as it was.
  Status ask(const std::string& prompt) {
    stopped_by_ = 0;
    answering_ = true;
    Status answered = answer(prompt);
    answering_ = false;
    return answered;
  }

  /// Any thread. True when there was an answer to stop.
  bool stop(int signal) {
    if (!answering_) return false;
    stopped_by_ = signal;  // before the answer can end by it
    if (const uint64_t id = current_; id != 0) instance_.engine->cancel(RequestId{id});
    return true;
  }
  /// The signal that ended the last answer, or 0.
  int stopped_by() const { return stopped_by_; }

 private:
  Status answer(const std::string& prompt) {
    say("user", prompt);
    auto request = make_request(prompt);
    auto pending = request.ok() ? Pending::submit(*instance_.engine, std::move(*request))
                                : Result<std::shared_ptr<Pending>>(request.error());
    if (!pending.ok()) {
      messages_.items().pop_back();
      return std::move(pending).error();
    }
    current_ = index((*pending)->id());
    if (const int signal = stopped_by_; signal != 0) stop(signal);  // asked for before there was an id
    Detokenizer detokenizer(instance_.tokenizer, true);
    std::string text;
    const auto show = [&](const std::string& piece) {
      text += piece;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
    const Reply answer = (*pending)->wait([&](std::span<const int32_t> tokens) {
      for (const int32_t token : tokens) show(detokenizer.add(token));
    });
    current_ = 0;
    show(detokenizer.finish() + "\n");
    if (answer.reason == FinishReason::error) return Error{answer.error};
    say("assistant", text.substr(0, text.size() - 1));
    if (options_.verbose) report(answer);
    return {};
  }

  void say(const char* role, const std::string& content) {
    messages_.items().push_back(Json(Json::Object{{"role", role}, {"content", content}}));
  }

  Result<Request> make_request(const std::string& prompt) {
    Request request;
    ASSIGN_OR_RETURN(request.prompt, encode(prompt));
    const auto used = static_cast<int64_t>(request.prompt.size());
    const int64_t room = instance_.memory.max_model_len - used;
    if (room < 1) {
      return Error{
          fmt::format("the conversation has {} tokens and the context holds {}; start anew or raise --max-model-len",
                      used, instance_.memory.max_model_len)};
    }
    request.max_tokens =
        static_cast<int32_t>(options_.max_tokens > 0 ? std::min<int64_t>(options_.max_tokens, room) : room);
    request.end_tokens = instance_.generation.end_tokens;
    const Json& defaults = instance_.generation.values;
    const auto pick = [&](double given, const char* name, double otherwise) {
      return static_cast<float>(given >= 0 ? given : defaults.number(name).value_or(otherwise));
    };
    SamplingParams& sampling = request.sampling;
    sampling.temperature = once_ && options_.temperature < 0 ? 0.0F : pick(options_.temperature, "temperature", 0.7);
    sampling.top_p = pick(options_.top_p, "top_p", 1.0);
    sampling.top_k = static_cast<int32_t>(pick(options_.top_k, "top_k", 0.0));
    sampling.repetition_penalty = pick(-1.0, "repetition_penalty", 1.0);
    instance_.generation.suppress(sampling);
    sampling.seed = options_.instance.seed != 0 ? static_cast<uint64_t>(options_.instance.seed) : random_seed();
    return request;
  }

  Result<std::vector<int32_t>> encode(const std::string& prompt) {
    if (!instance_.chat_template) return instance_.tokenizer->encode(prompt, {});
    Json variables(Json::Object{});
    variables.set("messages", messages_).set("add_generation_prompt", true);
    const auto special = [&](const char* name, std::optional<int32_t> id) {
      if (id) variables.set(name, instance_.tokenizer->token_text(*id));
    };
    special("bos_token", instance_.tokenizer->bos());
    special("eos_token", instance_.tokenizer->eos());
    ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces,
                     instance_.chat_template->render(variables, {"bos_token", "eos_token"}));
    return instance_.tokenizer->encode_pieces(pieces, false);
  }

  static void report(const Reply& answer) {
    const ReplyTimes& times = answer.times;
    const int32_t computed = times.prompt_tokens - times.cached_tokens;
    const double first = static_cast<double>(times.first_token_us) * 1e-6;
    const double rest = static_cast<double>(times.total_us - times.first_token_us) * 1e-6;
    fmt::print(
        stderr,
        "[prompt {} tokens, {} cached; first token {:.0f} ms, prefill {:.0f} tokens/s; {} tokens, {:.1f} tokens/s]\n",
        times.prompt_tokens, times.cached_tokens, first * 1e3, computed / first, times.output_tokens,
        rest > 0 ? (times.output_tokens - 1) / rest : 0.0);
  }

  Instance& instance_;
  const RunOptions& options_;
  const bool once_;
  Json messages_{Json::Array{}};
  std::atomic<bool> answering_{false};
  std::atomic<int> stopped_by_{0};
  std::atomic<uint64_t> current_{0};
};

int chat_lines(Chat& chat, Console& console, const Instance& instance) {
  fmt::print(stderr, "{} is ready ({:.2f} s). Type a message; Ctrl-C stops an answer, Ctrl-D leaves.\n",
             instance.checkpoint->path(), instance.load_seconds);
  while (true) {
    fmt::print(stderr, "> ");
    const auto line = console.line();
    if (!line) break;
    if (line->empty()) continue;
    const Status answered = chat.ask(*line);
    if (!answered.ok()) fail(answered.error().message);
  }
  fmt::print(stderr, "\n");
  return 0;
}

Result<RunOptions> parse(std::span<char* const> arguments, bool* help) {
  RunOptions options;
  Flags flags("quern run [MODEL] [PROMPT] [flags]", "quern run \"What is the capital of France?\"");
  std::vector<std::string> words;
  flags.positional("MODEL", &words);
  flags.add("--system", "TEXT", "system message", &options.system);
  flags.add("--temperature", "T", "0 always takes the best token (default: the model's; 0 for one answer)",
            &options.temperature, between(0, 2));
  flags.add("--top-p", "P", "sample from the best tokens that make up P", &options.top_p, Bounds{0, 1, true});
  flags.add("--top-k", "K", "sample from the K best tokens", &options.top_k, between(0, INT32_MAX));
  flags.add("--max-tokens", "N", "longest answer", &options.max_tokens, between(1, INT32_MAX));
  flags.add("--verbose", "print tokens/s and times after each answer", &options.verbose);
  add_instance_flags(flags, options.instance);
  TRY(flags.parse(arguments));
  *help = flags.help_wanted();
  if (*help) fmt::print("{}", flags.help());
  // One word that is no model is a prompt for the default model.
  if (!words.empty() && (words.size() > 1 || names_model(words[0]))) {
    options.instance.model = words[0];
    words.erase(words.begin());
  }
  for (const std::string& word : words) options.prompt += (options.prompt.empty() ? "" : " ") + word;
  options.instance.max_num_seqs = 1;
  return options;
}

}  // namespace

int run_command(std::span<char* const> arguments) {
  bool help = false;
  auto options = parse(arguments, &help);
  if (!options.ok()) return fail(options.error().message);
  if (help) return 0;

  Console console;
  std::atomic<Chat*> chat_now{nullptr};
  const Interrupt interrupt([&](int signal) {
    Chat* chat = chat_now.load();
    if (chat == nullptr) _exit(128 + signal);
    const bool answering = chat->stop(signal);
    if (signal != SIGINT || !answering) console.interrupt();
  });

  const bool terminal = isatty(STDIN_FILENO) != 0;
  const bool once = !options->prompt.empty() || !terminal;
  options->instance.quiet = once && !options->verbose;
  if (options->prompt.empty() && !terminal) options->prompt = console.everything();
  if (once && options->prompt.empty())
    return fail("nothing to answer: give a prompt as an argument or on standard input");
  auto instance = make_instance(options->instance);
  if (!instance.ok()) return fail(instance.error().message);
  if (!(*instance)->tokenizer) return fail("random weights have no tokenizer: give --tokenizer FILE");
  Chat chat(**instance, *options, once);
  chat_now = &chat;
  int status = 0;
  if (once) {
    const Status answered = chat.ask(options->prompt);
    if (!answered.ok()) status = fail(answered.error().message);
    if (const int signal = chat.stopped_by(); signal != 0) status = 128 + signal;
  } else {
    status = chat_lines(chat, console, **instance);
  }
  chat_now = nullptr;
  return status;
}

}  // namespace quern
