// Implementation interface of Uploader, with one overload per kind of stream.
#pragma once

#include <memory>

#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/runtime/upload.h"

namespace convoy {

/// Creates an uploader for the device whose compute stream is `compute`.
std::unique_ptr<Uploader::Impl> make_uploader(CpuStream& compute);
std::unique_ptr<Uploader::Impl> make_uploader(CudaStream& compute);

}  // namespace convoy
