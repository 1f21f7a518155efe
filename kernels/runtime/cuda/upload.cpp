#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

class CudaUpload final : public Upload::Impl {
 public:
  explicit CudaUpload(CudaStream& compute) : compute_(compute), copied_(compute.device()) {}

  /// Records the end of the copies on their stream.
  void record_end(CudaStream& copies) { copies.record(copied_); }
  void wait_on_compute_stream() override { compute_.wait(copied_); }
  bool done() const override { return copied_.reached(); }
  void wait() const override { copied_.wait(); }

 private:
  CudaStream& compute_;
  CudaEvent copied_;
};

class CudaUploader final : public Uploader::Impl {
 public:
  explicit CudaUploader(CudaStream& compute)
      : compute_(compute), copies_(compute.device(), compute.memory()), computed_(compute.device()) {}
  ~CudaUploader() override {
    try {
      copies_.synchronize();
    } catch (const Error&) {  // a GPU that has failed runs no more copies
    }
  }

  std::shared_ptr<Upload::Impl> start(std::span<const Uploader::Copy> copies) override {
    if (compute_.is_capturing()) throw CaptureError("cannot capture an upload");
    auto upload = std::make_shared<CudaUpload>(compute_);
    compute_.record(computed_);
    copies_.wait(computed_);
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0)
        CUDA_CHECK(cudaMemcpyAsync(copy.to.data, copy.from.data, copy.from.bytes(), cudaMemcpyDefault,
                                   copies_.handle()));
    upload->record_end(copies_);
    return upload;
  }

 private:
  CudaStream& compute_;
  CudaStream copies_;
  CudaEvent computed_;  // the end of the compute stream's work before the latest copies
};

}  // namespace

std::unique_ptr<Uploader::Impl> make_uploader(CudaStream& compute) {
  return std::make_unique<CudaUploader>(compute);
}

}  // namespace convoy
