// Tests of damaged checkpoints: truncations and flipped bits are detected quickly and with little memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/random.h"
#include "tests/faults/checkpoint_fixture.h"

// Defined where a sanitizer's runtime is linked, null elsewhere.
extern "C" __attribute__((weak)) void __asan_init();
extern "C" __attribute__((weak)) void __tsan_init();
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct CheckpointDamage : ::testing::Test {
  TempDirectory temp{TempDirectory::in_memory()};
  fs::path checkpoint;

  void SetUp() override {
    CheckpointScene scene(temp.path());
    scene.save(1, 1);
    checkpoint = scene.checkpoints().latest()->path;
  }

  void expect_rejected() const {
    const std::clock_t begin = std::clock();  // CPU time, which does not depend on the load of the machine
    EXPECT_THROW(io::read_manifest(checkpoint), CheckpointError);
    // Takes milliseconds without a sanitizer and on an idle core.
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 1);
  }
};

TEST_F(CheckpointDamage, DetectsEveryTruncation) {
  for (const std::string_view name : {io::kModelFile, io::kOptimizerFile, io::kManifestFile}) {
    const fs::path path = checkpoint / name;
    const std::string good = testing::contents_of(path);
    // The manifest's last byte is a newline without information.
    const std::size_t end = good.size() - (name == io::kManifestFile ? 1 : 0);
    for (std::size_t length = 0; length < end; length += 1 + length / 64) {
      SCOPED_TRACE(std::string(name) + " of " + std::to_string(length) + " bytes");
      write_bytes(path, good.substr(0, length));
      expect_rejected();
    }
    write_bytes(path, good + "x");
    expect_rejected();
    fs::remove(path);
    expect_rejected();
    write_bytes(path, good);
    EXPECT_EQ(io::read_manifest(checkpoint).step, 1);
  }
}

TEST_F(CheckpointDamage, DetectsEveryFlippedBitOfAManifest) {
  const fs::path path = checkpoint / io::kManifestFile;
  const std::string good = testing::contents_of(path);
  for (std::size_t bit = 0; bit < 8 * (good.size() - 1); ++bit) {
    SCOPED_TRACE(bit);
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(path, bad);
    expect_rejected();
  }
}

TEST_F(CheckpointDamage, DetectsFlippedBitsInHeaderAndData) {
  const fs::path path = checkpoint / io::kModelFile;
  const std::string good = testing::contents_of(path);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  const Random random{.seed = 3, .purpose = RandomPurpose::test};
  const auto data_start = 8 + static_cast<std::size_t>(header);
  for (std::size_t i = 0; i < data_start + 1000; ++i) {
    const auto draw = random.words(i);
    const std::size_t position =
        i < data_start ? i
                       : data_start + to_below(draw[0], static_cast<std::uint32_t>(good.size() - data_start));
    SCOPED_TRACE(position);
    std::string bad = good;
    bad[position] = static_cast<char>(bad[position] ^ (1 << (draw[1] % 8)));
    write_bytes(path, bad);
    expect_rejected();
    try {
      // Without the manifest the file is rejected or read as another valid file, but the reader never
      // crashes.
      io::read_safetensors(path, Device::cpu());
    } catch (const CheckpointError&) {
    }
  }
}

TEST_F(CheckpointDamage, RejectsInvalidManifests) {
  const fs::path path = checkpoint / io::kManifestFile;
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& text :
       {std::string("null"), std::string("{}"), std::string("[]"), std::string("{\"format\": 3}"),
        std::string("{\"format\": \"convoy checkpoint\", \"version\": 2}"),
        std::string("{\"format\": \"convoy checkpoint\", \"version\": 1, \"checksum\": null}"),
        repeated("[", 1'000'000), repeated("{\"a\":", 1'000'000) + "1" + repeated("}", 1'000'000),
        "{\"a\": " + repeated("[", 100'000) + repeated("]", 100'000) + "}"}) {
    SCOPED_TRACE(text.substr(0, 40));
    write_bytes(path, text);
    expect_rejected();
  }
}

std::uint64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  return 0;
}

TEST(SafetensorsMemory, ReadingNeedsOnlyTheMemoryOfTheFile) {
  if (__asan_init != nullptr || __tsan_init != nullptr)
    GTEST_SKIP() << "needs a build without sanitizers, which allocate additional memory";
  constexpr std::int64_t kElements = 16 << 20;
  const TempDirectory temp(TempDirectory::in_memory());
  std::string header = R"({"a":{"dtype":"F32","shape":[16777216],"data_offsets":[0,67108864]}})";
  const auto length = static_cast<std::uint64_t>(header.size());
  const fs::path path =
      temp.write("large.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header);
  fs::resize_file(path, 8 + length + 4 * kElements);

  std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM, the peak of the resident memory
  const std::uint64_t before = status_bytes("VmRSS");
  const io::SafetensorsFile file = io::read_safetensors(path, Device::cpu());
  const std::uint64_t peak = status_bytes("VmHWM");
  EXPECT_EQ(file.tensors[0].tensor.numel(), kElements);
  EXPECT_GT(peak - before, 3 * kElements);  // the measurement includes the tensor
  EXPECT_LT(static_cast<double>(peak - before), 1.1 * 4 * kElements);
}

}  // namespace
}  // namespace convoy::testing
