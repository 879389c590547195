#include "tensor/failing_device.h"

#include <atomic>
#include <utility>

namespace quern {
namespace {

/// Thread: as Device.
class FailingDevice final : public Device {
 public:
  FailingDevice(std::unique_ptr<Device> device, int64_t calls) : device_(std::move(device)), left_(calls) {}

  DeviceKind kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description() + ", which will fail"; }
  bool host_addressable() const override { return device_->host_addressable(); }
  Queue queue() override { return device_->queue(); }

  Result<std::byte*> allocate(int64_t bytes) override { return device_->allocate(bytes); }
  Result<std::byte*> allocate_host(int64_t bytes) override { return device_->allocate_host(bytes); }
  void release(std::byte* memory) override { device_->release(memory); }
  int64_t allocated_bytes() const override { return device_->allocated_bytes(); }
  int64_t free_bytes() const override { return device_->free_bytes(); }

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    alive().copy_in(to, from, bytes);
    --left_;
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    alive().copy_out(to, from, bytes);
    --left_;
  }
  void wait() override {
    alive().wait();
    --left_;
  }
  void upload(std::byte* to, const std::byte* from, int64_t bytes) override { alive().upload(to, from, bytes); }

  QueueMark mark() override {
    const QueueMark made = alive().mark();
    --left_;
    return made;
  }
  bool done(QueueMark mark) override { return alive().done(mark); }
  void wait_for(QueueMark mark) override {
    alive().wait_for(mark);
    --left_;
  }
  std::unique_ptr<Laps> make_laps() override { return device_->make_laps(); }
  std::unique_ptr<Captured> capture(const std::function<void(Queue)>& work) override { return alive().capture(work); }
  std::vector<DeviceReading> readings() override { return device_->readings(); }

 private:
  Device& alive() {
    if (left_ <= 0) throw DeviceLost{"the device was told to fail"};
    return *device_;
  }

  const std::unique_ptr<Device> device_;
  std::atomic<int64_t> left_;
};

}  // namespace

std::unique_ptr<Device> failing_device(std::unique_ptr<Device> device, int64_t calls) {
  return std::make_unique<FailingDevice>(std::move(device), calls);
}

}  // namespace quern
