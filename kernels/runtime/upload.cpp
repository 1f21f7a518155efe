#include "convoy/kernels/runtime/upload.h"

#include <cstring>

#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

/// Copies immediately. The compute stream of the CPU runs its work inline, so there is nothing to wait for.
class CpuUploader final : public Uploader::Impl {
 public:
  std::shared_ptr<Upload::Impl> start(std::span<const Uploader::Copy> copies) override {
    struct Done final : Upload::Impl {
      void wait_on_compute_stream() override {}
      bool done() const override { return true; }
      void wait() const override {}
    };
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0) std::memcpy(copy.to.data, copy.from.data, copy.from.bytes());
    return std::make_shared<Done>();
  }
};

}  // namespace

std::unique_ptr<Uploader::Impl> make_uploader(CpuStream&) { return std::make_unique<CpuUploader>(); }

Uploader::Uploader(const DeviceContext& to)
    : device_(to), impl_(on(to.stream(), [](auto& compute) { return make_uploader(compute); })) {}

Uploader::~Uploader() = default;

Upload Uploader::start(std::span<const Copy> copies) { return Upload(impl_->start(copies)); }

}  // namespace convoy
