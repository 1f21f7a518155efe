#include "convoy/apps/programs/npy.h"

#include <bit>

#include "convoy/kernels/base/check.h"

namespace convoy {

std::string encode_npy(const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little, "the header declares little-endian data");
  check(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64, "npy: found {}, expected f32 or f64",
        to_string(tensor.dtype()));
  std::string shape;
  for (const std::int64_t size : tensor.shape().sizes()) shape += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '<f{}', 'fortran_order': False, 'shape': ({}), }}",
                                   size_of(tensor.dtype()), shape);
  // Magic, version and header length take 10 bytes. Padding makes the data start at a multiple of 64 bytes.
  constexpr std::size_t kPrefix = 10;
  header.append((64 - (kPrefix + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  const Tensor host = tensor.to(Device::cpu());
  if (host.numel() > 0) bytes.append(static_cast<const char*>(host.view().data), host.bytes());
  return bytes;
}

}  // namespace convoy
