#include "convoy/kernels/runtime/upload.h"

#include <cstring>

#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

/// Copies immediately. The compute stream of the CPU runs its work inline, so there is nothing to wait for.
class CpuUploader final : public Uploader::Impl {
 public:
  void start(std::span<const Uploader::Copy> copies, Event::Impl& /*copied*/) override {
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0) std::memcpy(copy.to.data, copy.from.data, copy.from.bytes());
  }
};

}  // namespace

std::unique_ptr<Uploader::Impl> make_uploader(CpuStream&) { return std::make_unique<CpuUploader>(); }

Uploader::Uploader(const DeviceContext& to)
    : device_(to), impl_(on(to.stream(), [](auto& compute) { return make_uploader(compute); })) {}

Uploader::~Uploader() = default;

Upload Uploader::start(std::span<const Copy> copies) {
  const Stream compute = device_.stream();
  std::shared_ptr<Event::Impl> copied =
      on(compute, [](auto& stream) { return make_event(stream, /*timed=*/false); });
  impl_->start(copies, *copied);
  return {compute, std::move(copied)};
}

}  // namespace convoy
