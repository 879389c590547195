// quern pull: a model from a hub into the cache.
#include "hub/pull.h"

#include <atomic>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/hub/pull_bar.h"
#include "apps/interrupt.h"
#include "base/flags.h"
#include "base/json.h"

namespace quern {
namespace {

struct PullOptions {
  HubOptions hub = hub_options_from_environment();
  std::string model;
  std::string revision = "main";
  bool quiet = false;
  bool json = false;
};

int pull(const PullOptions& options) {
  const auto name = parse_model_name(options.model);
  if (!name.ok()) return fail(name.error().message);
  std::atomic<int> signals = 0;
  const Interrupt interrupt([&](int signal) {
    if (signals++ > 0) _exit(128 + signal);
  });
  Result<CachedModel> model = Error{};
  {
    PullBar bar(options.quiet);
    model = pull_model(options.hub, *name, options.revision, [&](const FileProgress& progress) {
      bar.show(progress);
      return signals == 0;
    });
  }
  if (!model.ok()) return fail(model.error().message) + (signals > 0 ? 129 : 0);
  int64_t bytes = 0;
  for (const HubFile& file : model->files.files) bytes += file.bytes;
  if (options.json) {
    Json out;
    out.set("name", Json(model->name.text())).set("path", Json(model->path()));
    out.set("commit", Json(model->commit)).set("bytes", Json(bytes));
    fmt::print("{}\n", out.dump());
  } else if (!options.quiet) {
    fmt::print("{}  {}\n{}\n", model->name.text(), size_text(bytes), model->path());
  }
  return 0;
}

}  // namespace

int pull_command(std::span<char* const> arguments) {
  PullOptions options;
  Flags flags("quern pull ORG/NAME[:QUANTIZATION or FILE] [flags]", "quern pull Qwen/Qwen3-0.6B-GGUF:Q8_0");
  flags.positional("MODEL", &options.model);
  flags.add("--endpoint", "URL", "the hub (or $HF_ENDPOINT)", &options.hub.endpoint);
  flags.add("--revision", "NAME", "a branch, a tag or a commit", &options.revision);
  flags.add("--token", "TOKEN", "for private and gated models (or $HF_TOKEN)", &options.hub.token);
  flags.add("--cache-dir", "FOLDER", "where models are kept (or $HF_HUB_CACHE, $HF_HOME/hub)", &options.hub.cache);
  flags.add("--max-workers", "N", "connections at once", &options.hub.connections, between(1, 64));
  flags.add("--range-size", "BYTES", "larger files come in such pieces", &options.hub.range_bytes,
            between(4096, 0x1p50));
  flags.add("--retries", "N", "how often a request that brings nothing is made again", &options.hub.retries,
            between(0, 1000));
  flags.alias("--download-dir", "--cache-dir");
  flags.add("--quiet", "print errors only", &options.quiet);
  flags.add("--json", "print the result as JSON", &options.json);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  if (options.model.empty()) return fail("name a model, such as Qwen/Qwen3-0.6B-GGUF:Q8_0");
  return pull(options);
}

}  // namespace quern
