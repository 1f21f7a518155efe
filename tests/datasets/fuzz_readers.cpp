// A fuzz target for all parsers: any input may be refused with DataError, and no other error may occur. The
// first byte selects the parser. fuzz_readers_test.cpp runs it on a fixed corpus. To search for new inputs,
// link it with clang++ -fsanitize=fuzzer,address.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convoy/datasets/formats/parsers.h"
#include "convoy/datasets/formats/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string name = "fuzz";
  try {
    constexpr std::int64_t kRecords = 2;
    static const data::ImageSet set{Tensor::zeros({kRecords, 32, 32, 3}, DType::u8, Device::cpu()),
                                    Tensor::zeros({kRecords}, DType::i32, Device::cpu())};
    switch (data[0] % 4) {
      case 0: data::decode_image(bytes, name, data[0] / 4 % 2 == 0 ? 0 : 16); break;
      case 1: data::parse_idx_images(bytes, name); break;
      case 2: data::parse_idx_labels(bytes, name, 10); break;
      case 3: data::parse_cifar_batch(bytes, name, 0, kRecords, set); break;
    }
  } catch (const DataError&) {
    // the input was refused, which is allowed
  }
  return 0;
}
