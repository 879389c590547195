// OllamaModels: the models that this server serves and those on its disk, as Ollama tells of them, and what clients may
// do to them. Disks and networks take their time, so the work is done on threads of its own. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/call.h"
#include "server/ollama/model_requests.h"
#include "server/openai/generation.h"
#include "server/options.h"
#include "server/routes.h"
#include "server/text_pool.h"

namespace quern {

/// A model that requests can name.
struct ServedCard {
  std::vector<std::string> names;
  ModelDetails details;
  bool loaded = true;
  int64_t memory_bytes = 0;
  int64_t gpu_bytes = 0;
  int32_t context_length = 0;
  std::string parameters;             // how it is sampled from, a line each
  std::optional<int64_t> expires_us;  // when it is unloaded, in Unix time; none: never
};

/// What there is to tell of a loaded model.
ServedCard card_of(const TextModel& model);

class OllamaModels {
 public:
  using Served = std::function<std::vector<ServedCard>()>;

  OllamaModels(const ServerOptions& options, Served served);
  /// Ends pulls that are going on.
  ~OllamaModels();
  OllamaModels(const OllamaModels&) = delete;
  OllamaModels& operator=(const OllamaModels&) = delete;

  /// Answers a request to one of the endpoints about models.
  void answer(const std::shared_ptr<Call>& call, Endpoint endpoint, std::string_view path);

 private:
  using Request = OllamaModelRequest;
  using Task = std::function<void(const OllamaModels&, Call&)>;
  using Reader = Request (*)(Fields& fields, const ServerOptions& options);
  using Asked = void (OllamaModels::*)(Call& call, const Request& request) const;

  void tags(Call& call) const;
  void running(Call& call) const;
  void show(Call& call, const Request& request) const;
  void pull(const std::shared_ptr<Call>& call);
  void copy(Call& call, const Request& request) const;
  void remove(Call& call, const Request& request) const;
  bool may_change(Call& call) const;
  void run(const std::shared_ptr<Call>& call, Task task);
  /// Reads the body and does what it asks for.
  void run(const std::shared_ptr<Call>& call, Reader reader, Asked asked);
  Checked<Request> read(Call& call, Reader reader) const;
  void run_pull(const std::shared_ptr<Call>& call, const Request& request);

  const ServerOptions& options_;
  const std::shared_ptr<ModelLibrary> library_;
  const bool may_change_;
  const Served served_;
  const int64_t started_us_;
  std::atomic<bool> stopping_ = false;
  TextPool quick_;  // what disks answer
  TextPool pulls_;
};

}  // namespace quern
