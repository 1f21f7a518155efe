// Behind Uploader: one overload a kind of device.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/upload.h"

namespace convoy {

std::unique_ptr<Uploader::Lane> make_upload_lane(CpuStream& compute);
std::unique_ptr<Uploader::Lane> make_upload_lane(CudaStream& compute);

}  // namespace convoy
