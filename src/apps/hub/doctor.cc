// quern doctor: what this machine has for models, and what is in their way.
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/hub/library.h"
#include "apps/hub/pull_bar.h"
#include "base/file.h"
#include "base/flags.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "net/tls.h"
#include "ops/kernel.h"
#include "tensor/device.h"

namespace quern {
namespace {

constexpr int64_t kLittleMemory = int64_t{4} << 30;
constexpr int64_t kLittleDisk = int64_t{20} << 30;
constexpr uint64_t kFewFiles = 8192;

struct Finding {
  std::string what;
  std::string found;
  std::string advice;  // empty: all is well
};

/// The value of `key` in a file of "key : value" lines, such as /proc/cpuinfo; or empty.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Bytes of a line of /proc/meminfo, which counts in KiB.
int64_t memory_of(std::string_view key) {
  const std::string text = value_of("/proc/meminfo", key);
  const auto number = parse_integer(text.substr(0, text.find(' ')));
  return number.ok() ? *number * 1024 : 0;
}

/// The folder itself, or the nearest one above it that is there.
std::string existing(std::string folder) {
  while (folder.size() > 1 && !file_exists(folder)) folder = folder.substr(0, std::max<size_t>(1, folder.rfind('/')));
  return folder;
}

Finding check_cpu() {
  Finding cpu{"cpu",
              fmt::format("{}, {} cores, kernels for {}", value_of("/proc/cpuinfo", "model name"), usable_cores(),
                          isa_name(isa_in_force())),
              ""};
  if (isa_in_force() == Isa::portable) cpu.advice = "without AVX2 models run many times slower; use a newer processor";
  return cpu;
}

Finding check_memory() {
  const int64_t total = memory_of("MemTotal"), available = memory_of("MemAvailable");
  Finding memory{"memory", fmt::format("{} available of {}", size_text(available), size_text(total)), ""};
  if (const auto text = read_file("/sys/fs/cgroup/memory.max", 64); text.ok()) {
    const auto limit = parse_integer(text->substr(0, text->find('\n')));
    if (limit.ok() && *limit < total) memory.found += fmt::format("; this container may use {}", size_text(*limit));
  }
  if (available < kLittleMemory)
    memory.advice = "larger models need more: end other programs, or choose a smaller quantization";
  return memory;
}

Finding check_gpu() {
  const auto gpu = make_device(DeviceKind::cuda, {});
  if (gpu.ok()) return {"gpu", (*gpu)->description(), ""};
  const bool driver = file_exists("/dev/nvidiactl");
  std::string version = value_of("/proc/driver/nvidia/version", "NVRM version");
  if (!driver) return {"gpu", "none; models run on the CPU", ""};
  return {"gpu", version.empty() ? "there is one" : version,
          gpu.error().message + "; models run on the CPU until then"};
}

Finding check_cache(const HubOptions& hub) {
  const auto models = HubLibrary().list();
  int64_t bytes = 0;
  for (const StoredModel& model : *models) bytes += model.bytes;
  Finding cache{"models",
                fmt::format("{} in {} and {}, {}", models->size(), hub.cache, models_folder(), size_text(bytes)), ""};
  const std::string folder = existing(hub.cache);
  if (::access(folder.c_str(), W_OK) != 0)
    cache.advice = fmt::format("{} cannot be written: set HF_HOME to a folder that can", folder);
  return cache;
}

Finding check_disk(const HubOptions& hub) {
  const std::string folder = existing(hub.cache);
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return {"disk", "not known", file_error(folder).message};
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  Finding disk{"disk", fmt::format("{} free for models", size_text(free)), ""};
  if (free < kLittleDisk) disk.advice = "models are large: make room, or set HF_HOME to a folder on another disk";
  return disk;
}

Finding check_hub(const HubOptions& hub) {
  Finding found{"hub",
                fmt::format("{}, {}{}", hub.endpoint, hub.token.empty() ? "no token" : "with a token",
                            hub.offline ? ", offline" : ""),
                ""};
  if (hub.offline) found.advice = "HF_HUB_OFFLINE is set: nothing is pulled";
  if (const auto trust = tls_for_client(); !trust.ok()) found.advice = trust.error().message;
  return found;
}

Finding check_port(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int failure = errno;
  ::close(socket);
  if (free) return {"port", fmt::format("{} is free", port), ""};
  return {"port", fmt::format("{} is not free: {}", port, std::strerror(failure)),
          failure == EADDRINUSE ? "a server runs there already (quern ps), or choose another one with --port"
                                : "choose another one with --port"};
}

Finding check_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Finding files{"open files", fmt::format("{} at once", limit.rlim_cur), ""};
  if (limit.rlim_cur < kFewFiles) {
    files.advice = fmt::format("a server with thousands of clients needs more: ulimit -n {} (systemd: LimitNOFILE)",
                               std::min<uint64_t>(65536, limit.rlim_max));
  }
  return files;
}

void print(const std::vector<Finding>& findings, bool json) {
  Json all{Json::Array{}};
  for (const Finding& finding : findings) {
    const std::string_view state = finding.advice.empty() ? "ok" : "warning";
    if (json) {
      Json one;
      one.set("check", Json(finding.what)).set("status", Json(state)).set("found", Json(finding.found));
      one.set("advice", Json(finding.advice));
      all.items().push_back(std::move(one));
      continue;
    }
    fmt::print("{:8} {:12}{}\n", state, finding.what, finding.found);
    if (!finding.advice.empty()) fmt::print("{:21}{}\n", "", finding.advice);
  }
  if (json) fmt::print("{}\n", Json(Json::Object{{"version", Json(quern_version)}, {"checks", all}}).dump());
}

}  // namespace

int doctor_command(std::span<char* const> arguments) {
  int port = 8000;
  bool json = false;
  Flags flags("quern doctor [flags]", "quern doctor --json");
  flags.add("--port", "N", "the port that a server would take", &port, between(1, 65535));
  flags.add("--json", "print JSON", &json);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  const HubOptions hub = hub_options_from_environment();
  print({check_cpu(), check_memory(), check_gpu(), check_cache(hub), check_disk(hub), check_hub(hub), check_port(port),
         check_files()},
        json);
  return 0;
}

}  // namespace quern
