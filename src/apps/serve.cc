// quern serve: a model over the OpenAI API.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <mutex>
#include <unistd.h>
#include <vector>

#include "apps/commands.h"
#include "apps/hub/inspect.h"
#include "apps/hub/library.h"
#include "apps/instance.h"
#include "apps/interrupt.h"
#include "base/event.h"
#include "base/log.h"
#include "ops/sample.h"
#include "server/server.h"

namespace quern {
namespace {

struct ServeOptions {
  InstanceOptions instance;
  ServerOptions server;
  std::vector<std::string> allowed_origins;
  std::string default_template_variables;
  std::string tool_call_parser;
  std::string reasoning_parser;
  std::string reasoning_field = "both";
  std::string log_level = "info";
  std::string log_format = "text";
  double shutdown_timeout_s = 30;
  bool dry_run = false;
};

/// SIGTERM or Ctrl-C: the first one drains, the second one leaves at once.
class StopSign {
 public:
  void raise(int signal) {
    const std::lock_guard lock(mutex_);
    if (count_++ > 0) _exit(128 + signal);
    raised_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    raised_.wait(lock, [&] { return count_ > 0; });
  }

 private:
  std::mutex mutex_;  // between the signal's thread and main
  std::condition_variable raised_;
  int count_ = 0;
};

void add_server_flags(Flags& flags, ServeOptions& o) {
  flags.add("--host", "ADDRESS", "where to listen (default 127.0.0.1; 0.0.0.0 is everywhere)", &o.server.http.host);
  flags.add("--port", "N", "0 takes any free one", &o.server.http.port);
  flags.add("--served-model-name", "NAME", "what clients call the model; may be repeated", &o.server.model_names);
  flags.add("--api-key", "KEY", "clients must send it; may be repeated (or $QUERN_API_KEY)", &o.server.api_keys);
  flags.add("--ssl-certfile", "FILE", "serve HTTPS with this certificate chain (PEM)", &o.server.http.tls.certificates);
  flags.add("--ssl-keyfile", "FILE", "its private key (default: in the same file)", &o.server.http.tls.key);
  flags.add("--ssl-ca-certs", "FILE", "clients must show a certificate that one of these has signed",
            &o.server.http.tls.client_authorities);
  flags.add("--metrics-auth", "/metrics asks for the key too", &o.server.metrics_auth);
  flags.add("--strict-params", "refuse fields that are not known", &o.server.strict_params);
  flags.add("--webui", "a page for people at / (default; --no-webui turns it off)", &o.server.web_page);
  flags.add("--ollama-api", "Ollama's API at /api (default; --no-ollama-api turns it off)", &o.server.ollama_api);
  flags.add("--allow-model-management", "clients may pull, copy and delete models by /api",
            &o.server.allow_model_management);
  flags.add("--allowed-origins", "ORIGIN", "origins that browsers may call from; may be repeated (default: all)",
            &o.allowed_origins);
  flags.add("--allowed-hosts", "NAME", "further names of a server on the loopback interface; may be repeated",
            &o.server.allowed_hosts);
  flags.add("--max-logprobs", "N", "most top_logprobs of a request", &o.server.max_logprobs);
  flags.add("--default-chat-template-kwargs", "JSON", "variables of every chat template",
            &o.default_template_variables);
  flags.add("--tool-call-parser", "NAME", "how the model spells tool calls (default: seen in the chat template; none)",
            &o.tool_call_parser);
  flags.add("--reasoning-parser", "NAME", "how it marks its reasoning (default: seen in the chat template; none)",
            &o.reasoning_parser);
  flags.add("--reasoning-field", "NAME", "where reasoning goes: reasoning, reasoning_content or both",
            &o.reasoning_field);
  flags.add("--watchdog-timeout", "SECONDS", "/health fails when work stands still so long",
            &o.server.watchdog_timeout_s);
  flags.add("--request-timeout", "SECONDS", "longest time of a request (default: none)", &o.server.request_timeout_s);
  flags.add("--shutdown-timeout", "SECONDS", "how long running answers may take after SIGTERM", &o.shutdown_timeout_s);
  flags.add("--log-level", "LEVEL", "debug, info, warning or error", &o.log_level);
  flags.add("--log-format", "text|json", "lines for people, or a JSON object each", &o.log_format);
  flags.add("--dry-run", "print the memory plan and leave", &o.dry_run);
}

/// Flags of vLLM that change nothing here are named and passed over; anything else unknown is an error.
std::vector<char*> without_ignored(std::span<char* const> arguments) {
  static constexpr std::string_view switches[] = {
      "--enable-auto-tool-choice", "--enforce-eager",     "--trust-remote-code",
      "--enable-chunked-prefill",  "--async-scheduling",  "--disable-log-requests",
      "--enable-log-requests",     "--disable-log-stats", "--enable-prompt-tokens-details"};
  static constexpr std::string_view with_value[] = {"--swap-space", "--gpu-memory-utilization", "--uvicorn-log-level",
                                                    "--block-size", "--api-server-count"};
  std::vector<char*> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const std::string_view name = word.substr(0, word.find('='));
    const bool valued = std::ranges::find(with_value, name) != std::end(with_value);
    if (!valued && std::ranges::find(switches, name) == std::end(switches)) {
      kept.push_back(arguments[i]);
      continue;
    }
    fmt::print(stderr, "quern: {} changes nothing here and is passed over\n", name);
    if (valued && name.size() == word.size()) ++i;
  }
  return kept;
}

SamplingParams sampling_defaults(const Json& values) {
  SamplingParams sampling;
  const auto number = [&](const char* name, float* into) {
    if (const auto value = values.number(name)) *into = static_cast<float>(*value);
  };
  number("temperature", &sampling.temperature);
  number("top_p", &sampling.top_p);
  number("min_p", &sampling.min_p);
  number("repetition_penalty", &sampling.repetition_penalty);
  if (const auto top_k = values.integer("top_k")) sampling.top_k = static_cast<int32_t>(*top_k);
  if (values.boolean("do_sample") == false && !values.has("temperature")) sampling.temperature = 0.0F;
  return sampling;
}

void complete_pooling(ServerOptions& options, const Instance& instance) {
  const Task& task = instance.task();
  options.output = task.output;
  PoolingOptions& pooling = options.pooling;
  pooling.dim = instance.spec().dim;
  pooling.normalize = task.normalize;
  pooling.any_dimensions = task.any_dimensions;
  pooling.dimensions = task.dimensions;
  pooling.prompts = task.prompts;
  pooling.default_prompt = task.default_prompt;
  pooling.sigmoid = task.sigmoid;
  const auto& pooler = instance.spec().pooler;
  pooling.asks_yes_or_no = pooler && pooler->head && pooler->head->yes_or_no;
}

void complete(ServerOptions& options, const Instance& instance) {
  complete_pooling(options, instance);
  if (options.model_names.empty()) options.model_names.push_back(instance.name);
  options.model_root = instance.checkpoint->path();
  options.version = quern_version;
  if (auto details = inspect_model(instance.checkpoint->path()); details.ok()) options.details = std::move(*details);
  options.memory_bytes = instance.memory.total();
  if (instance.device->kind() != DeviceKind::cpu) options.gpu_bytes = options.memory_bytes;
  options.most_sequences = instance.options.max_num_seqs;
  options.max_model_len = instance.memory.max_model_len;
  options.vocab_size = instance.spec().vocab;
  options.end_tokens = instance.generation.end_tokens;
  options.defaults.sampling = sampling_defaults(instance.generation.values);
  if (const auto most = instance.generation.values.integer("max_new_tokens")) {
    options.defaults.max_tokens = static_cast<int32_t>(*most);
  }
}

/// The device's readings, and its memory by owner.
std::vector<Gauge> gauges_of(const Instance& instance) {
  std::vector<Gauge> all;
  for (const DeviceReading& reading : instance.device->readings()) {
    all.push_back({std::string(reading.name), std::string(reading.help), "", reading.value});
  }
  const auto memory = [&](const char* owner, int64_t bytes) {
    all.push_back({"quern_device_memory_bytes", "Device memory that this process holds, by owner.",
                   fmt::format(",owner=\"{}\"", owner), static_cast<double>(bytes)});
  };
  memory("weights", instance.memory.weights);
  memory("kv_cache", instance.memory.kv());
  memory("executor", instance.memory.executor);
  return all;
}

void print_ready(const Instance& instance, const ServeOptions& options, int port) {
  const std::string& host = options.server.http.host;
  const std::string shown = host == "0.0.0.0" || host == "::" ? "localhost" : host;
  const std::string& name = options.server.model_names[0];
  fmt::print("quern {} serves {} on {}\n", quern_version, name, instance.device->description());
  fmt::print("task: {}\n\n", task_name(instance.task().output));
  fmt::print("{}\n", describe(instance.memory));
  if (options.server.reply_format.dialect() != nullptr) fmt::print("{}\n", options.server.reply_format.description());
  const TlsFiles& tls = options.server.http.tls;
  const std::string_view scheme = tls.certificates.empty() ? "http" : "https";
  fmt::print("ready after {:.2f} s at {}://{}:{}\n\n", instance.load_seconds, scheme, shown, port);
  struct Sample {
    const char* path;
    const char* body;
  };
  constexpr Sample samples[] = {
      {"chat/completions", "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]"},
      {"embeddings", "\"input\": [\"Hello world\", \"Guten Tag\"]"},
      {"rerank", "\"query\": \"What is a panda?\", \"documents\": [\"It is a bear.\", \"It is a car.\"]"}};
  const Sample& sample = samples[static_cast<size_t>(instance.task().output)];
  fmt::print("  curl {}://{}:{}/v1/{} -H 'Content-Type: application/json' \\\n    -d '{{\"model\": \"{}\", {}}}'\n\n",
             scheme, shown, port, sample.path, name, sample.body);
  if (shown != host && options.server.api_keys.empty())
    fmt::print("anybody who reaches this port may use it: set --api-key\n");
  std::fflush(stdout);
}

Status apply_log_format(const std::string& name) {
  if (name != "text" && name != "json") return Error{fmt::format("--log-format {}: say text or json", name)};
  set_log_format(name == "json" ? LogFormat::json : LogFormat::text);
  return {};
}

Status apply_log_level(const std::string& name) {
  static constexpr std::pair<std::string_view, LogLevel> levels[] = {
      {"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warning", LogLevel::warning}, {"error", LogLevel::error}};
  for (const auto& [known, level] : levels) {
    if (name == known) return set_log_level(level), Status();
  }
  return Error{fmt::format("--log-level {}: say debug, info, warning or error", name)};
}

Result<ServeOptions> parse(std::span<char* const> arguments, bool* help) {
  ServeOptions options;
  options.server.http.port = 8000;
  options.instance.task = "auto";
  Flags flags("quern serve [MODEL] [flags]", "quern serve model.gguf --port 8000");
  flags.positional("MODEL", &options.instance.model);
  add_server_flags(flags, options);
  add_instance_flags(flags, options.instance);
  add_task_flag(flags, options.instance);
  TRY(flags.parse(without_ignored(arguments)));
  *help = flags.help_wanted();
  if (*help) fmt::print("{}", flags.help());
  TRY(apply_log_level(options.log_level));
  TRY(apply_log_format(options.log_format));
  if (options.server.http.port < 0 || options.server.http.port > 65535)
    return Error{"--port must be between 0 and 65535"};
  const TlsFiles& tls = options.server.http.tls;
  if (tls.certificates.empty() && !(tls.key + tls.client_authorities).empty())
    return Error{"--ssl-keyfile and --ssl-ca-certs need --ssl-certfile"};
  if (options.server.max_logprobs < 0 || options.server.max_logprobs > max_top_logprobs)
    return Error{fmt::format("--max-logprobs must be between 0 and {}", max_top_logprobs)};
  if (const char* key = std::getenv("QUERN_API_KEY"); key != nullptr && *key != 0)
    options.server.api_keys.emplace_back(key);
  if (!options.allowed_origins.empty()) options.server.allowed_origins = options.allowed_origins;
  static constexpr std::string_view fields[] = {"both", "reasoning", "reasoning_content"};
  const auto field = std::ranges::find(fields, options.reasoning_field);
  if (field == std::end(fields)) return Error{"--reasoning-field takes reasoning, reasoning_content or both"};
  options.server.reasoning_fields = static_cast<ReasoningFields>(field - std::begin(fields));
  if (!options.default_template_variables.empty()) {
    auto given = Json::parse(options.default_template_variables);
    if (!given.ok() || !given->is_object()) return Error{"--default-chat-template-kwargs must be a JSON object"};
    options.server.template_variables = std::move(*given);
  }
  return options;
}

int serve(ServeOptions& options) {
  StopSign stop;
  const Interrupt interrupt([&](int signal) { stop.raise(signal); });
  auto instance = make_instance(options.instance);
  if (!instance.ok()) return fail(instance.error().message);
  if (!(*instance)->tokenizer) return fail("random weights have no tokenizer: give --tokenizer FILE");
  options.server.seed = static_cast<uint64_t>(options.instance.seed);
  complete(options.server, **instance);
  std::shared_ptr<const ChatTemplate> chat;
  auto format = ReplyFormat::make(options.tool_call_parser, options.reasoning_parser,
                                  (*instance)->chat_template ? (*instance)->chat_template->source() : "",
                                  *(*instance)->tokenizer);
  if (!format.ok()) return fail(format.error().message);
  options.server.reply_format = std::move(format).value();
  if ((*instance)->chat_template) chat = std::make_shared<const ChatTemplate>(std::move(*(*instance)->chat_template));
  if (options.server.allow_model_management) options.server.library = std::make_shared<HubLibrary>();
  options.server.gauges = [model = instance->get()] { return gauges_of(*model); };
  EngineService service(*(*instance)->engine);
  Server server(options.server, service, (*instance)->tokenizer, chat);
  const Status started = server.start();
  if (!started.ok()) return fail(started.error().message);
  print_ready(**instance, options, server.port());
  stop.wait();
  log_info("draining: running answers have {:.0f} s to finish", options.shutdown_timeout_s);
  const auto patience = std::chrono::milliseconds(static_cast<int64_t>(options.shutdown_timeout_s * 1e3));
  const bool all = server.drain(std::chrono::steady_clock::now() + patience);
  log_info("{}", all ? "drained; all answers were finished" : "stopped; some answers were cut off");
  return 0;
}

}  // namespace

int serve_command(std::span<char* const> arguments) {
  bool help = false;
  auto options = parse(arguments, &help);
  if (!options.ok()) return fail(options.error().message);
  if (help) return 0;
  if (!options->dry_run) return serve(*options);
  const auto opened = open_model(options->instance);
  if (!opened.ok()) return fail(opened.error().message);
  fmt::print("{}", describe(opened->memory));
  return 0;
}

}  // namespace quern
