#include "kernels/runtime/cuda_check.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/upload_lane.h"

namespace convoy {
namespace {

class CudaGroup final : public Upload::Group {
 public:
  explicit CudaGroup(CudaStream& compute) : compute_(compute), copied_(compute.device()) {}

  void end(CudaStream& copies) { copies.record(copied_); }
  void join() override { compute_.wait(copied_); }
  bool done() const override { return copied_.reached(); }
  void wait() const override { copied_.wait(); }

 private:
  CudaStream& compute_;
  CudaEvent copied_;
};

class CudaLane final : public Uploader::Lane {
 public:
  explicit CudaLane(CudaStream& compute)
      : compute_(compute), copies_(compute.device(), compute.memory()), so_far_(compute.device()) {}
  ~CudaLane() override {
    try {
      copies_.synchronize();
    } catch (const Error&) {  // a GPU that has failed copies nothing more
    }
  }

  std::shared_ptr<Upload::Group> start(std::span<const Uploader::Copy> copies) override {
    if (compute_.is_capturing()) throw CaptureError("an upload inside recorded work");
    auto group = std::make_shared<CudaGroup>(compute_);
    compute_.record(so_far_);
    copies_.wait(so_far_);
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0)
        CUDA_CHECK(cudaMemcpyAsync(copy.to.data, copy.from.data, copy.from.bytes(), cudaMemcpyDefault,
                                   copies_.handle()));
    group->end(copies_);
    return group;
  }

 private:
  CudaStream& compute_;
  CudaStream copies_;
  CudaEvent so_far_;  // of the compute stream, when copies were last started
};

}  // namespace

std::unique_ptr<Uploader::Lane> make_upload_lane(CudaStream& compute) {
  return std::make_unique<CudaLane>(compute);
}

}  // namespace convoy
