#include "apps/serve/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <ranges>
#include <utility>

#include "apps/commands.h"
#include "apps/hub/library.h"
#include "apps/measure/machine_facts.h"
#include "apps/serve/config.h"
#include "apps/serve/keys_file.h"
#include "base/duration.h"
#include "base/event.h"
#include "base/log.h"

namespace quern {
namespace {

constexpr double longest_s = 1e9;  // of a time in seconds
constexpr std::string_view exit_statuses =
    "exit status: 0 when told to stop, 1 after an error, 130 after Ctrl-C before anything is served;\n"
    "130 and 143 after a second Ctrl-C or SIGTERM, which ends everything at once\n";

/// Flags whose text is looked at when all are known.
struct RawFlags {
  std::vector<std::string> models;
  std::string models_dir;
  std::string keep_alive = "-1";
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_methods;
  std::vector<std::string> allowed_headers;
  std::string config;
  std::string default_template_variables;
  std::string generation;
  std::string structured_outputs;
  std::string reasoning_field = "both";
  std::string logprobs_mode = "raw_logprobs";
  std::string log_level = "info";
  std::string log_format = "text";
};

void add_model_flags(Flags& flags, ServeOptions& o, RawFlags& raw) {
  flags.positional("MODEL", &raw.models);
  flags.add("--models-dir", "DIR", "serve every .gguf file and model folder in it", &raw.models_dir);
  flags.add("--models-memory-bytes", "N", "of several models together (default: nine parts in ten of what is free)",
            &o.models.memory_bytes, between(1, 0x1p50));
  flags.add("--keep-alive", "DURATION", "unload a model after so long without a request (default: when others need it)",
            &raw.keep_alive);
  flags.add("--pin", "NAME", "load this one at start and never unload it; may be repeated", &o.models.pinned);
  flags.add("--served-model-name", "NAME...", "what clients call the model; may be repeated", &o.server().model_names);
  flags.take_more("--served-model-name");
  flags.add("--tool-call-parser", "NAME", "how the model spells tool calls (default: seen in the chat template; none)",
            &o.models.tool_call_parser);
  flags.add("--reasoning-parser", "NAME", "how it marks its reasoning (default: seen in the chat template; none)",
            &o.models.reasoning_parser);
  flags.add("--reasoning-field", "NAME", "where reasoning goes: reasoning, reasoning_content or both",
            &raw.reasoning_field);
  flags.add("--default-chat-template-kwargs", "JSON", "variables of every chat template",
            &raw.default_template_variables);
}

void add_server_flags(Flags& flags, ServeOptions& o, RawFlags& raw) {
  ServerOptions& server = o.server();
  flags.add("--host", "ADDRESS", "where to listen (default 127.0.0.1; 0.0.0.0 is everywhere)", &server.http.host);
  flags.add("--port", "N", "0 takes any free one", &server.http.port, between(0, 65535));
  flags.add("--api-key", "KEY", "clients must send it; may be repeated (or $QUERN_API_KEY, $VLLM_API_KEY)",
            &raw.api_keys);
  flags.add("--api-keys-file", "FILE", "keys with names and limits, read again on SIGHUP: docs/operations.md",
            &o.api_keys_file);
  flags.add("--ssl-certfile", "FILE", "serve HTTPS with this certificate chain (PEM)", &server.http.tls.certificates);
  flags.add("--ssl-keyfile", "FILE", "its private key (default: in the same file)", &server.http.tls.key);
  flags.add("--ssl-ca-certs", "FILE", "clients must show a certificate that one of these has signed",
            &server.http.tls.client_authorities);
  flags.add("--metrics-auth", "/metrics asks for the key too", &server.metrics_auth);
  flags.add("--strict-params", "refuse fields that are not known", &server.strict_params);
  flags.add("--webui", "a page for people at / (default; --no-webui turns it off)", &server.web_page);
  flags.add("--ollama-api", "Ollama's API at /api (default; --no-ollama-api turns it off)", &server.ollama_api);
  flags.add("--allow-model-management", "clients may pull, copy and delete models by /api",
            &server.allow_model_management);
  flags.add("--allowed-origins", "ORIGIN", "origins that browsers may call from; may be repeated (default: all)",
            &raw.allowed_origins);
  flags.add("--allowed-methods", "METHOD", "what they may send: names or a JSON list, may be repeated (default: all)",
            &raw.allowed_methods);
  flags.add("--allowed-headers", "HEADER", "the same for their headers", &raw.allowed_headers);
  flags.add("--allow-credentials", "they may send what a browser keeps of this server", &server.allow_credentials);
  flags.add("--enable-sleep-mode", "/sleep, /wake_up, /is_sleeping and /reset_prefix_cache", &server.sleep_mode);
  flags.add("--allowed-hosts", "NAME", "further names of a server on the loopback interface; may be repeated",
            &server.allowed_hosts);
  flags.add("--max-logprobs", "N", "most logprobs of one token; -1: of the whole vocabulary (20)", &server.max_logprobs,
            between(-1, INT32_MAX));
  flags.add("--logprobs-mode", "MODE", "", &raw.logprobs_mode);  // vLLM's: docs/api.md
  flags.add("--watchdog-timeout", "SECONDS", "/health fails when work stands still so long", &server.watchdog_timeout_s,
            Bounds{0, longest_s, true});
  flags.add("--request-timeout", "SECONDS", "longest time of a request; 0: any (default)", &server.request_timeout_s,
            between(0, longest_s));
  flags.add("--shutdown-grace", "SECONDS", "", &o.shutdown_grace_s, between(0, longest_s));  // docs/operations.md
  flags.add("--shutdown-timeout", "SECONDS", "how long running answers may take after SIGTERM", &o.shutdown_timeout_s,
            between(0, longest_s));
  flags.add("--log-level", "LEVEL", "debug, info, warning or error", &raw.log_level);
  flags.add("--log-format", "text|json", "lines for people, or a JSON object each", &raw.log_format);
  flags.add("--config", "FILE", "TOML with the names of these flags; the command line wins", &raw.config);
  flags.add("--dry-run", "print the memory plan and leave", &o.dry_run);
}

/// Without a line in the help: docs/operations.md tells of them.
void add_rare_flags(Flags& flags, ServeOptions& o, RawFlags& raw) {
  ServerOptions& server = o.server();
  flags.add("--uds", "PATH", "", &server.http.uds);
  flags.add("--root-path", "PATH", "", &server.root_path);
  flags.add("--max-connections-per-peer", "N", "", &server.http.max_connections_per_peer, between(0, INT32_MAX));
  flags.add("--override-generation-config", "JSON", "", &raw.generation);
  flags.add("--enable-force-include-usage", "", &server.always_usage);
  flags.add("--structured-outputs-config", "JSON", "", &raw.structured_outputs);
}

/// Flags of vLLM that change nothing here are named and passed over; anything else unknown is an error.
Result<std::vector<char*>> without_ignored(std::span<char* const> arguments) {
  static constexpr std::string_view switches[] = {"--enable-auto-tool-choice",    "--trust-remote-code",
                                                  "--enable-chunked-prefill",     "--async-scheduling",
                                                  "--disable-log-requests",       "--enable-log-requests",
                                                  "--disable-log-stats",          "--enable-prompt-tokens-details",
                                                  "--enable-ssl-refresh",         "--enable-request-id-headers",
                                                  "--enable-server-load-tracking"};
  // With the one value that changes nothing, where others would.
  static constexpr std::pair<std::string_view, std::string_view> with_value[] = {
      {"--swap-space", ""},
      {"--uvicorn-log-level", ""},
      {"--block-size", ""},
      {"--api-server-count", ""},
      {"--disable-access-log-for-endpoints", ""},
      {"--tensor-parallel-size", "1"},
      {"--pipeline-parallel-size", "1"},
      {"--data-parallel-size", "1"},
      {"--cpu-offload-gb", "0"},
      {"--stream-interval", "1"},
      {"--response-role", "assistant"},
      {"--scheduling-policy", "fcfs"},
      {"--chat-template-content-format", "auto"}};
  std::vector<char*> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const std::string_view name = word.substr(0, word.find('='));
    const auto* const known = std::ranges::find(with_value, name, [](const auto& one) { return one.first; });
    const bool valued = known != std::end(with_value);
    if (!valued && std::ranges::find(switches, name) == std::end(switches)) {
      kept.push_back(arguments[i]);
      continue;
    }
    std::string_view value = word.substr(std::min(word.size(), name.size() + 1));
    if (valued && name.size() == word.size() && i + 1 < arguments.size()) value = arguments[++i];
    if (valued && !known->second.empty() && value != known->second)
      return Error{fmt::format("{} {}: only {} is supported", name, value, known->second)};
    fmt::print(stderr, "quern: {} changes nothing here and is passed over\n", name);
  }
  return kept;
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

Status apply_models(ServeOptions& options, const RawFlags& raw) {
  const auto keep_alive = parse_duration(raw.keep_alive);
  if (!keep_alive.ok()) return Error{fmt::format("--keep-alive: {}", keep_alive.error().message)};
  options.keeper.keep_alive_s = *keep_alive;
  for (const std::string& model : raw.models) options.paths.push_back(named_path(model));
  if (!options.models.instance.model.empty()) options.paths.push_back(named_path(options.models.instance.model));
  if (!raw.models_dir.empty()) {
    ASSIGN_OR_RETURN(const std::vector<NamedPath> found, models_in(raw.models_dir));
    options.paths.insert(options.paths.end(), found.begin(), found.end());
  }
  if (options.paths.empty()) options.paths.emplace_back();  // the built-in default
  return {};
}

/// Each of `given` is a name, or a JSON list of names as vLLM takes it.
Status read_list(const char* flag, const std::vector<std::string>& given, std::vector<std::string>& names) {
  if (given.empty()) return {};
  names.clear();
  for (const std::string& text : given) {
    if (!text.starts_with('[')) {
      names.push_back(text);
      continue;
    }
    const auto list = Json::parse(text);
    const bool good = list.ok() && std::ranges::all_of(list->items(), [](const Json& one) { return one.is_string(); });
    if (!good) return Error{fmt::format("{} {}: say a name, or a JSON list of names", flag, text)};
    for (const Json& one : list->items()) names.push_back(one.as_string());
  }
  return {};
}

/// Text of a flag as a JSON object; null for "".
Result<Json> json_object(const char* flag, const std::string& text) {
  if (text.empty()) return Json();
  auto given = Json::parse(text);
  if (!given.ok() || !given->is_object()) return Error{fmt::format("{} must be a JSON object", flag)};
  return given;
}

Status apply_server(ServeOptions& options, const RawFlags& raw) {
  ServerOptions& server = options.server();
  if (server.allow_model_management) server.library = std::make_shared<HubLibrary>();
  const TlsFiles& tls = server.http.tls;
  if (tls.certificates.empty() && !(tls.key + tls.client_authorities).empty())
    return Error{"--ssl-keyfile and --ssl-ca-certs need --ssl-certfile"};
  for (const char* name : {"QUERN_API_KEY", "VLLM_API_KEY"}) {
    const char* key = std::getenv(name);
    if (key != nullptr && *key != 0) options.command_line_keys.push_back({"", key_digest(key), {}});
  }
  for (const std::string& text : raw.api_keys) options.command_line_keys.push_back({"", key_digest(text), {}});
  ASSIGN_OR_RETURN(server.api_keys, all_keys(options));
  TRY(read_list("--allowed-origins", raw.allowed_origins, server.allowed_origins));
  TRY(read_list("--allowed-methods", raw.allowed_methods, server.allowed_methods));
  TRY(read_list("--allowed-headers", raw.allowed_headers, server.allowed_headers));
  static constexpr std::string_view fields[] = {"both", "reasoning", "reasoning_content"};
  const auto field = std::ranges::find(fields, raw.reasoning_field);
  if (field == std::end(fields)) return Error{"--reasoning-field takes reasoning, reasoning_content or both"};
  server.reasoning_fields = static_cast<ReasoningFields>(field - std::begin(fields));
  server.tell_processed = raw.logprobs_mode.starts_with("processed_");
  server.tell_logits = raw.logprobs_mode.ends_with("_logits");
  static constexpr std::string_view modes[] = {"raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"};
  if (std::ranges::find(modes, raw.logprobs_mode) == std::end(modes)) {
    return Error{fmt::format("--logprobs-mode takes {}", fmt::join(modes, ", "))};
  }
  ASSIGN_OR_RETURN(server.template_variables,
                   json_object("--default-chat-template-kwargs", raw.default_template_variables));
  return {};
}

Status apply_generation(ServeOptions& options, const RawFlags& raw) {
  struct Known {
    std::string_view name;
    double least, most;
    bool whole = false;
  };
  static constexpr Known known[] = {{"temperature", 0, 2},
                                    {"top_p", 1e-6, 1},
                                    {"top_k", -1, INT32_MAX, true},
                                    {"min_p", 0, 1},
                                    {"repetition_penalty", 1e-3, 1e3},
                                    {"max_new_tokens", 1, INT32_MAX, true}};
  constexpr std::string_view flag = "--override-generation-config";
  ASSIGN_OR_RETURN(options.models.generation, json_object("--override-generation-config", raw.generation));
  if (options.models.generation.is_null()) return {};
  for (const auto& [name, value] : options.models.generation.members()) {
    if (name == "do_sample") {
      if (!value.is_bool()) return Error{fmt::format("{}: do_sample cannot be {}", flag, value.dump())};
      continue;
    }
    const auto* const found = std::ranges::find(known, name, &Known::name);
    if (found == std::end(known)) {
      return Error{fmt::format("{}: {} is not one of do_sample, {}", flag, name,
                               fmt::join(known | std::views::transform(&Known::name), ", "))};
    }
    const auto number = options.models.generation.number(name);
    if (!number || !(*number >= found->least && *number <= found->most) ||
        (found->whole && *number != std::floor(*number))) {
      return Error{fmt::format("{}: {} cannot be {}; it is a {} from {} to {}", flag, name, value.dump(),
                               found->whole ? "whole number" : "number", found->least, found->most)};
    }
  }
  return {};
}

/// vLLM's settings, where they say what is done here anyway.
Status check_structured_outputs(ServeOptions& options, const RawFlags& raw) {
  constexpr const char* flag = "--structured-outputs-config";
  ASSIGN_OR_RETURN(const Json given, json_object(flag, raw.structured_outputs));
  if (given.is_null()) return {};
  for (const auto& [name, value] : given.members()) {
    if (name == "reasoning_parser" && value.is_string()) {
      options.models.reasoning_parser = value.as_string();
      continue;
    }
    const bool backend = name == "backend" && (value == Json("auto") || value == Json("xgrammar"));
    const bool off = (name == "disable_any_whitespace" || name == "disable_additional_properties" ||
                      name == "enable_in_reasoning") &&
                     value == Json(false);
    if (backend || off || (name == "disable_fallback" && value.is_bool())) continue;
    return Error{
        fmt::format("{}: {} {} is not supported; the backend is xgrammar, and disable_any_whitespace, "
                    "disable_additional_properties and enable_in_reasoning are false",
                    flag, name, value.dump())};
  }
  return {};
}

Status check_places(const ServeOptions& options) {
  const std::string& root = options.models.server.root_path;
  if (!root.empty() && (!root.starts_with('/') || root.ends_with('/')))
    return Error{fmt::format("--root-path {}: it must begin with / and not end with one", root)};
  return {};
}

}  // namespace

Result<std::vector<ApiKey>> all_keys(const ServeOptions& options) {
  std::vector<ApiKey> keys;
  if (!options.api_keys_file.empty()) {
    ASSIGN_OR_RETURN(keys, read_keys(options.api_keys_file));
  }
  keys.insert(keys.end(), options.command_line_keys.begin(), options.command_line_keys.end());
  return keys;
}

Result<ServeOptions> parse_serve_options(std::span<char* const> arguments, bool* help) {
  ServeOptions options;
  RawFlags raw;
  options.server().http.port = 8000;
  options.server().version = quern_version;
  options.server().build = git_hash;
  options.models.instance.task = "auto";
  Flags flags("quern serve [MODEL | NAME=MODEL]... [flags]", "quern serve model.gguf --port 8000");
  add_model_flags(flags, options, raw);
  add_server_flags(flags, options, raw);
  add_rare_flags(flags, options, raw);
  add_instance_flags(flags, options.models.instance);
  add_task_flag(flags, options.models.instance);
  // Twice, as the file comes first and the command line names it.
  ASSIGN_OR_RETURN(const std::vector<char*> kept, without_ignored(arguments));
  TRY(flags.parse(kept));
  if (!raw.config.empty() && !flags.help_wanted()) {
    ASSIGN_OR_RETURN(std::vector<std::string> words, config_words(raw.config, flags));
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    ASSIGN_OR_RETURN(const std::vector<char*> wanted, without_ignored(pointers));
    const Status read = flags.parse(wanted);
    if (!read.ok()) return Error{fmt::format("{}: {}", raw.config, read.error().message)};
    TRY(flags.parse(kept));
  }
  *help = flags.help_wanted();
  if (*help) fmt::print("{}\n{}", flags.help(), exit_statuses);
  TRY(apply_log_level(raw.log_level));
  TRY(apply_log_format(raw.log_format));
  TRY(apply_server(options, raw));
  TRY(check_places(options));
  TRY(apply_generation(options, raw));
  TRY(check_structured_outputs(options, raw));
  TRY(apply_models(options, raw));
  return options;
}

}  // namespace quern
