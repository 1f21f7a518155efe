// Runs the fuzz target on reproducibly damaged inputs, which are drawn from Philox.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "convoy/kernels/base/random.h"
#include "tests/testing/support/image_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace convoy {
namespace {

using testing::Picture;

/// Returns valid files, each prefixed with the byte that selects its parser.
std::vector<std::string> seeds() {
  std::vector<std::string> files;
  for (const char chooser : {'\0', '\4'})
    for (const int channels : {1, 3})
      for (const std::string& image : {testing::jpeg(Picture::ramp(21, 17, channels), 60),
                                       testing::jpeg(Picture::ramp(21, 17, channels), 95),
                                       testing::png(Picture::ramp(9, 6, channels + 1)),
                                       testing::bmp(Picture::ramp(7, 5, channels + 1)), testing::webp()})
        files.push_back(chooser + image);
  const std::string palette = testing::png_chunk("PLTE", std::string("\1\2\3\4\5\6", 6));
  files.push_back('\0' + testing::raw_png(8, 2, 1, 3, std::string("\0\x55\0\xAA", 4), palette));
  const std::string header =
      testing::big32(0x803) + testing::big32(2) + testing::big32(3) + testing::big32(4);
  files.push_back('\1' + header + std::string(24, 'x'));
  files.push_back('\1' + testing::gzip(header + std::string(24, 'x')));
  files.push_back('\2' + testing::gzip(testing::big32(0x801) + testing::big32(3) + "\1\2\3"));
  files.push_back('\3' + std::string(2 * 3073, '\1'));
  return files;
}

/// Applies one to four edits: set a byte, flip a bit, remove or repeat a range, truncate.
std::string mutated(std::string file, const Random& random, std::uint64_t id) {
  const std::uint32_t edits = 1 + to_below(random.words(id)[0], 4);
  for (std::uint32_t edit = 1; edit <= edits && file.size() > 1; ++edit) {
    const auto words = random.words(id, edit);
    const std::size_t at = 1 + to_below(words[1], static_cast<std::uint32_t>(file.size() - 1));
    const std::size_t length = 1 + to_below(words[2], 16);
    // Bytes with a meaning in some format, and one random byte.
    constexpr std::uint8_t kTelling[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0xC0, 0xC2, 0xC4,
                                         0xDA, 0xD9, 'h',  'R',  'b',  't',  'e',  'u'};
    const std::uint8_t byte = words[3] % 2 == 0 ? kTelling[words[3] / 2 % std::size(kTelling)]
                                                : static_cast<std::uint8_t>(words[3] >> 8);
    switch (to_below(words[0], 8)) {
      case 0: file.erase(at, length); break;
      case 1: file.insert(at, file.substr(at, length)); break;
      case 2: file.resize(at); break;
      case 3:
      case 4: file[at] = static_cast<char>(file[at] ^ (1 << (words[3] % 8))); break;
      default: file[at] = static_cast<char>(byte); break;
    }
  }
  return file;
}

std::uint32_t big32_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = (value << 8) | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

/// Repairs the checksums of a damaged PNG (after the selector byte and the signature), as an attacker would.
/// Otherwise the checksum test would reject all damage.
std::string with_checksums(std::string file) {
  std::size_t at = 1 + 8;
  while (at + 12 <= file.size()) {
    const std::size_t length = big32_at(file, at);
    if (length > file.size() - at - 12) break;
    const std::string chunk = testing::png_chunk(file.substr(at + 4, 4), file.substr(at + 8, length));
    file.replace(at, chunk.size(), chunk);
    at += chunk.size();
  }
  return file;
}

TEST(FuzzReaders, DamagedInputsAreReadOrRefused) {
  // CONVOY_FUZZ_ROUNDS extends a manual search. The default is the same in every run.
  const char* wanted = std::getenv("CONVOY_FUZZ_ROUNDS");
  const std::uint64_t rounds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 40;
  const Random random{1, RandomPurpose::test};
  const std::vector<std::string> files = seeds();
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::string input = mutated(files[i], random, round * files.size() + i);
      if (input.compare(1, 4, "\x89PNG") == 0) input = with_checksums(std::move(input));
      EXPECT_NO_THROW(
          LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()))
          << "round " << round << " of file " << i;
    }
}

}  // namespace
}  // namespace convoy
