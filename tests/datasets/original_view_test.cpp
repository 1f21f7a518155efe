// Random crops and rotations of original images.
#include "convoy/datasets/transforms/original_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numbers>
#include <set>

#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/shared/augment_choices.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kImageRows = 96, kImageColumns = 120, kViewSide = 24;

Random random_of(std::uint32_t epoch) { return {7, RandomPurpose::augmentation, epoch}; }

/// Returns an image of kImageRows x kImageColumns pixels (2x, 2y, 255).
std::vector<std::uint8_t> ramps() {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < kImageRows; ++y)
    for (int x = 0; x < kImageColumns; ++x)
      pixels.insert(pixels.end(), {static_cast<std::uint8_t>(2 * x), static_cast<std::uint8_t>(2 * y), 255});
  return pixels;
}

std::vector<double> view_of(const data::OriginalViewOptions& options, std::uint32_t epoch, std::uint64_t id) {
  const std::vector<std::uint8_t> pixels = ramps();
  std::vector<std::uint8_t> out(kViewSide * kViewSide * 3);
  data::OriginalView view(options, kViewSide, kViewSide);
  view.write({pixels.data(), kImageRows, kImageColumns, 3}, random_of(epoch), id, out.data());
  return {out.begin(), out.end()};
}

/// Returns the values of channel `c` at row y and column x.
double at(const std::vector<double>& view, std::int64_t y, std::int64_t x, int c) {
  return view[static_cast<std::size_t>((y * kViewSide + x) * 3 + c)];
}

TEST(OriginalView, ResizesTheBoxOfTheOriginalImage) {
  std::set<int> areas;
  for (std::uint64_t id = 0; id < 20; ++id) {
    const kernels::ImageBox box = kernels::choose_box(8, random_of(3), id, kImageRows, kImageColumns);
    areas.insert(box.height * box.width * 10 / int{kImageRows * kImageColumns});
    const std::vector<double> view = view_of({.min_area = 8}, 3, id);
    for (std::int64_t i = 3; i < kViewSide - 3; ++i) {  // at the edges the filter is cut
      const double step = static_cast<double>(i) + 0.5;
      EXPECT_NEAR(at(view, i, i, 0), 2 * (box.left + step * box.width / kViewSide - 0.5), 1.01) << id;
      EXPECT_NEAR(at(view, i, i, 1), 2 * (box.top + step * box.height / kViewSide - 0.5), 1.01) << id;
      EXPECT_EQ(at(view, i, i, 2), 255);
    }
  }
  EXPECT_GE(areas.size(), 5u) << "of many sizes";
  EXPECT_EQ(view_of({.min_area = 8}, 3, 5), view_of({.min_area = 8}, 3, 5));
  EXPECT_NE(view_of({.min_area = 8}, 3, 5), view_of({.min_area = 8}, 4, 5));
  EXPECT_NE(view_of({.min_area = 8}, 3, 5), view_of({.min_area = 8}, 3, 6));
}

TEST(OriginalView, RotatesAboutTheCenter) {
  constexpr double kScale =
      96.0 / kViewSide;  // pixels of the original image per pixel of the centered square
  double smallest = 0, largest = 0;
  for (std::uint64_t id = 0; id < 40; ++id) {
    const std::vector<double> view = view_of({.rotation = 30}, 0, id);
    constexpr std::int64_t kFrom = kViewSide / 2 - 4, kTo = kViewSide / 2 + 3;
    const auto slope = [&](int c, bool down) {
      return (at(view, down ? kTo : kFrom, down ? kFrom : kTo, c) - at(view, kFrom, kFrom, c)) /
             (2 * kScale * static_cast<double>(kTo - kFrom));
    };
    const double angle = std::atan2(slope(1, false), slope(0, false));
    EXPECT_NEAR(std::hypot(slope(0, false), slope(1, false)), 1, 0.03) << "a rotation keeps lengths";
    EXPECT_NEAR(std::atan2(-slope(0, true), slope(1, true)), angle, 0.04) << "and angles";
    const auto middle = [&](int c) {
      double sum = 0;
      for (const std::int64_t y : {kViewSide / 2 - 1, kViewSide / 2})
        for (const std::int64_t x : {kViewSide / 2 - 1, kViewSide / 2}) sum += at(view, y, x, c) / 4;
      return sum;
    };
    EXPECT_NEAR(middle(0), kImageColumns - 1, 1.5);
    EXPECT_NEAR(middle(1), kImageRows - 1, 1.5);
    smallest = std::min(smallest, angle);
    largest = std::max(largest, angle);
  }
  const double maximum = 30 * std::numbers::pi / 180;
  EXPECT_GE(smallest, -maximum - 0.03);
  EXPECT_LE(smallest, -maximum * 0.7);
  EXPECT_LE(largest, maximum + 0.03);
  EXPECT_GE(largest, maximum * 0.7);
}

TEST(OriginalView, AsksForTheSideThatItsBoxNeeds) {
  for (std::uint64_t id = 0; id < 50; ++id) {
    const std::int64_t side = data::OriginalView({.min_area = 8}, 16, 16).needed_side(random_of(0), id);
    const int height = static_cast<int>(side), width = static_cast<int>(side * 3 / 2);
    const kernels::ImageBox box = kernels::choose_box(8, random_of(0), id, height, width);
    EXPECT_GE(std::min(box.height, box.width), 16) << "no pixel is enlarged";
    EXPECT_LE(std::min(box.height, box.width), 22) << "no larger image is decoded than necessary";
  }
  EXPECT_EQ(data::OriginalView({.rotation = 9}, 20, 16).needed_side(random_of(0), 1), 20);
}

/// Writes an upright picture with a red part above and below the square of its center.
void write_tower(const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary);
  constexpr int kRows = 96, kColumns = 32;
  std::string header(54, '\0');
  header.replace(0, 2, "BM");
  const auto put = [&](std::size_t place, int value) {
    for (int i = 0; i < 4; ++i)
      header[place + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
  };
  put(2, 54 + kRows * kColumns * 3);
  put(10, 54);
  put(14, 40);
  put(18, kColumns);
  put(22, kRows);
  header[26] = 1;
  header[28] = 24;
  out << header;
  for (int y = 0; y < kRows; ++y)
    for (int x = 0; x < kColumns; ++x)
      out << (y < 24 || y >= 72 ? std::string("\0\0\xff", 3) : std::string("\xff\0\0", 3));
}

TEST(OriginalView, OfABatchComesFromTheFiles) {
  const TempDirectory directory;
  for (const char* split : {"train/a", "train/b", "test/a", "test/b"}) {
    std::filesystem::create_directories(directory.path() / split);
    for (const char* name : {"1.bmp", "2.bmp", "3.bmp", "4.bmp"})
      write_tower(directory.path() / split / name);
  }
  const data::ImageSet train = data::read_image_folder(directory.path(), {.image_size = 16}).train;
  const auto red = [](const data::Batch& batch) {
    const auto values = batch.images.to_vector<float>();
    int count = 0;
    for (std::size_t i = 0; i < values.size(); i += 3) count += values[i] > 0.9f ? 1 : 0;
    return count;
  };
  data::LoaderOptions options{.global_batch = 8, .seed = 5, .workers = 0};
  EXPECT_EQ(red(data::DataLoader(train, options).next_step()[0]), 0) << "the stored squares have none";
  options.transform.original.min_area = 8;
  data::DataLoader loader(train, options);
  const data::Batch whole = loader.next_step()[0];
  EXPECT_GT(red(whole), 50);
  std::vector<float> shards;
  for (options.rank = 0, options.world_size = 2; options.rank < 2; ++options.rank) {
    options.workers = options.rank;
    const auto part = data::DataLoader(train, options).next_step()[0].images.to_vector<float>();
    shards.insert(shards.end(), part.begin(), part.end());
  }
  EXPECT_EQ(shards, whole.images.to_vector<float>()) << "of two ranks, with and without a worker";

  options.rank = 0;
  options.world_size = 1;
  data::DataLoader after(train, options);
  std::filesystem::remove(directory.path() / "train/b/3.bmp");
  try {
    after.seek(1);
    after.next_step();
    ADD_FAILURE() << "a file is missing";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("train/b/3.bmp"));
  }
  data::ImageSet without_files = train;  // `after` still reads `train`
  without_files.decode = nullptr;
  EXPECT_THROW(data::DataLoader(without_files, options), UsageError);
}

}  // namespace
}  // namespace convoy::testing
