#include "kernels/runtime/upload.h"

#include <cstring>

#include "kernels/runtime/upload_lane.h"

namespace convoy {
namespace {

/// The compute stream of the CPU works inline, so there is nothing to wait for, before or after.
class CpuLane final : public Uploader::Lane {
 public:
  std::shared_ptr<Upload::Group> start(std::span<const Uploader::Copy> copies) override {
    struct Done final : Upload::Group {
      void join() override {}
      bool done() const override { return true; }
      void wait() const override {}
    };
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0) std::memcpy(copy.to.data, copy.from.data, copy.from.bytes());
    return std::make_shared<Done>();
  }
};

}  // namespace

std::unique_ptr<Uploader::Lane> make_upload_lane(CpuStream&) { return std::make_unique<CpuLane>(); }

Uploader::Uploader(const Device& to)
    : device_(to), lane_(on(to.stream(), [](auto& compute) { return make_upload_lane(compute); })) {}

Uploader::~Uploader() = default;

Upload Uploader::start(std::span<const Copy> copies) { return Upload(lane_->start(copies)); }

}  // namespace convoy
