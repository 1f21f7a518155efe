#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

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

  void start(std::span<const Uploader::Copy> copies, Event::Impl& copied) override {
    if (compute_.is_capturing()) throw CaptureError("cannot capture an upload");
    compute_.record(computed_);
    copies_.wait(computed_);
    for (const Uploader::Copy& copy : copies)
      if (copy.from.bytes() > 0)
        CUDA_CHECK(cudaMemcpyAsync(copy.to.data, copy.from.data, copy.from.bytes(), cudaMemcpyDefault,
                                   copies_.handle()));
    copied.record(std::ref(copies_));
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
