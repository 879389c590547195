// From a checkpoint's files to a model on a device: its spec, its weights in packed layout, its decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "apps/task.h"
#include "apps/weight_store.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/source.h"
#include "model/decoder.h"
#include "model/pooler.h"
#include "model/spec.h"
#include "tensor/device.h"

namespace quern {

/// A block of device memory that is given back when its owner goes.
class DeviceMemory {
 public:
  static Result<DeviceMemory> allocate(Device& device, int64_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) device_->release(data_);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// What a model will be, known before anything is allocated.
struct ModelPlan {
  DecoderSpec spec;
  Decoder decoder;  // over addresses without memory: it can be measured, not run
  Pooler pooler;    // the same; nothing for a model that makes text
  Task task;
  int64_t weight_bytes = 0;
};

struct LoadedModel {
  DecoderSpec spec;
  DeviceMemory weights;
  Decoder decoder;
  Pooler pooler;  // nothing for a model that makes text
  Task task;
};

struct LoadOptions {
  Json config_overrides;  // an object whose members replace those of config.json
  Quantize quantize = Quantize::no;
  std::string task = "auto";                  // what the model is for (apps/task.h)
  int threads = 0;                            // 0: one per usable core
  std::function<void(double)> progress = {};  // called by the loading thread with 0..1
};

/// The spec that config.json describes, as the weights of this kind of file want it.
Result<DecoderSpec> read_spec(const Checkpoint& checkpoint, const Json& config_overrides = {});

/// Checks names, shapes and types of all tensors and adds up exact bytes; reads no weights.
Result<ModelPlan> plan_model(const Checkpoint& checkpoint, DeviceKind device, const Json& config_overrides = {},
                             Quantize quantize = Quantize::no, const std::string& task = "auto");

/// Converts all weights in parallel, straight into one block of device memory. The checkpoint may be closed afterwards.
Result<LoadedModel> load_model(const Checkpoint& checkpoint, Device& device, const LoadOptions& options = {});

}  // namespace quern
