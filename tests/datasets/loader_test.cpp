#include "convoy/datasets/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "convoy/kernels/base/error.h"
#include "tests/datasets/loader_fixture.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST(DataLoader, BatchesDoNotDependOnTheNumberOfWorkers) {
  const data::ImageSet set = make_set(103);
  data::LoaderOptions options{
      .global_batch = 16, .micro_batch = 5, .seed = 3, .transform = random_transform(), .workers = 0};
  const auto expected = run(set, options, 3);
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_EQ(expected[0].size(), 6u * 4 + 2);  // 16 = 4 + 4 + 4 + 4, and 7 = 4 + 3
  EXPECT_NE(expected[0], expected[1]);
  for (const int workers : {1, 2, 5})
    for (const int prefetch : {1, 2, 4, 50}) {
      options.workers = workers;
      options.prefetch = prefetch;
      EXPECT_EQ(run(set, options, 3), expected) << workers << " workers, prefetch " << prefetch;
    }
}

TEST(DataLoader, AugmentsRepetitionsOfABalancedEpochDifferently) {
  data::ImageSet set = make_set(40);
  set.labels = Tensor::full({40}, 1, DType::i32, Device::cpu());
  set.labels.rows(11, 12).copy_from(Tensor::full({1}, 0, DType::i32, Device::cpu()));
  data::LoaderOptions options{.global_batch = 40, .seed = 3, .balance = set.labels, .workers = 0};
  const auto plain = run(set, options, 1)[0][0];
  const Copy one = run(set, {.global_batch = 40, .shuffle = false}, 1)[0][0];
  int of_class_0 = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const auto row = static_cast<std::size_t>(plain.ids[i] % 40);
    EXPECT_EQ(plain.labels[i], row == 11 ? 0 : 1);
    EXPECT_TRUE(std::equal(plain.images.begin() + static_cast<std::ptrdiff_t>(i * kPixels),
                           plain.images.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPixels),
                           one.images.begin() + static_cast<std::ptrdiff_t>(row * kPixels)));
    of_class_0 += plain.labels[i] == 0 ? 1 : 0;
  }
  EXPECT_EQ(of_class_0, 20);
  options.transform = random_transform();
  const auto augmented = run(set, options, 1)[0][0];
  std::set<std::vector<float>> views;
  for (std::size_t i = 0; i < 40; ++i)
    if (augmented.labels[i] == 0)
      views.insert({augmented.images.begin() + static_cast<std::ptrdiff_t>(i * kPixels),
                    augmented.images.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPixels)});
  EXPECT_GE(views.size(), 15u) << "of one image";
  for (const int ranks : {2, 3}) {  // the shards of all ranks are the epoch
    std::vector<std::int32_t> ids;
    for (int rank = 0; rank < ranks; ++rank) {
      options.rank = rank;
      options.world_size = ranks;
      const auto shard = run(set, options, 1)[0][0].ids;
      ids.insert(ids.end(), shard.begin(), shard.end());
    }
    EXPECT_EQ(ids, plain.ids);
  }
  options.shuffle = false;
  EXPECT_THROW(data::DataLoader(set, options), UsageError);
}

TEST(DataLoader, NormalizesTheImagesOfItsIds) {
  const data::ImageSet set = make_set(20);
  const data::TransformSpec transform = random_transform().evaluation();
  const auto pixels = set.images.to_vector<std::uint8_t>();
  data::DataLoader loader(set, {.global_batch = 6, .shuffle = false, .transform = transform});
  std::int32_t next = 0;
  for (const Copy& batch : rest_of_epoch(loader))
    for (std::size_t i = 0; i < batch.ids.size(); ++i, ++next) {
      ASSERT_EQ(batch.ids[i], next);  // not shuffled
      ASSERT_EQ(batch.labels[i], next % 7);
      for (std::size_t p = 0; p < kPixels; ++p) {
        const float pixel = pixels[static_cast<std::size_t>(next) * kPixels + p] / 255.0f;
        const kernels::AugmentOptions& augment = transform.augment;
        // Three roundings of values below 1, times 6.
        ASSERT_NEAR(batch.images[i * kPixels + p],
                    (pixel - augment.mean[p % kChannels]) * augment.inverse_std[p % kChannels],
                    6 * 4 * 6e-8f);
      }
    }
  EXPECT_EQ(next, 20);
}

TEST(DataLoader, Bf16IsF32RoundedOnce) {
  const data::ImageSet set = make_set(9);
  data::LoaderOptions options{.global_batch = 9, .transform = random_transform()};
  data::DataLoader single(set, options);
  options.dtype = DType::bf16;
  data::DataLoader half(set, options);
  const Tensor found = half.next_step()[0].images;
  ASSERT_EQ(found.dtype(), DType::bf16);
  const auto exact = single.next_step()[0].images.to_vector<float>();
  const auto widened = found.to(DType::f32).to_vector<float>();
  ASSERT_EQ(widened.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i)
    ASSERT_EQ(widened[i], static_cast<float>(bfloat16(exact[i])));
}

TEST(DataLoader, F64MatchesF32WithMoreDigits) {
  const data::ImageSet set = make_set(9);
  data::LoaderOptions options{.global_batch = 9, .transform = random_transform()};
  data::DataLoader narrow(set, options);
  options.dtype = DType::f64;
  data::DataLoader wide(set, options);
  const auto expected = narrow.next_step()[0].images.to_vector<float>();
  const auto found = wide.next_step()[0].images.to_vector<double>();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], static_cast<double>(expected[i]), 6 * 4 * 6e-8);
}

/// Checks an epoch on `world` ranks: each sample occurs once, and its image does not depend on the division.
void check_division(const data::ImageSet& set, int world_size, std::int64_t micro_batch,
                    const std::vector<Copy>& alone) {
  SCOPED_TRACE(::testing::Message() << world_size << " ranks, micro-batches of " << micro_batch);
  std::map<std::int32_t, std::vector<float>> images;  // by id, from a single rank
  for (const Copy& batch : alone)
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
      images[batch.ids[i]].assign(batch.images.begin() + static_cast<std::ptrdiff_t>(i * kPixels),
                                  batch.images.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPixels));
  std::vector<std::vector<std::int32_t>> update_ids(alone.size());
  std::size_t batches = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    data::DataLoader loader(set, {.global_batch = 8,
                                  .micro_batch = micro_batch,
                                  .rank = rank,
                                  .world_size = world_size,
                                  .seed = 3,
                                  .transform = random_transform()});
    const std::vector<Copy> copies = rest_of_epoch(loader);
    if (rank == 0) batches = copies.size();
    EXPECT_EQ(copies.size(), batches);  // the same number on every rank
    for (const Copy& batch : copies) {
      const auto step = static_cast<std::size_t>(batch.step);
      EXPECT_EQ(batch.global_count, alone[step].global_count);
      update_ids[step].insert(update_ids[step].end(), batch.ids.begin(), batch.ids.end());
      for (std::size_t i = 0; i < batch.ids.size(); ++i)
        EXPECT_EQ(std::memcmp(images[batch.ids[i]].data(), batch.images.data() + i * kPixels,
                              kPixels * sizeof(float)),
                  0);
    }
  }
  for (std::size_t step = 0; step < alone.size(); ++step) EXPECT_EQ(update_ids[step], alone[step].ids);
}

TEST(DataLoader, ImagesDoNotDependOnRanksAndMicroBatches) {
  const data::ImageSet set = make_set(35);  // the last step has 3 samples, fewer than ranks
  const auto alone = run(set, {.global_batch = 8, .seed = 3, .transform = random_transform()}, 1)[0];
  std::vector<std::int32_t> ids;
  for (const Copy& batch : alone) ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
  std::sort(ids.begin(), ids.end());
  std::vector<std::int32_t> all(35);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ids, all);
  for (const int world_size : {1, 2, 3, 4, 8, 11})
    for (const std::int64_t micro_batch : {0, 1, 3}) check_division(set, world_size, micro_batch, alone);
}

TEST(DataLoader, ARankWithoutSamplesGetsAnEmptyBatch) {
  const data::ImageSet set = make_set(5);
  data::DataLoader loader(set, {.global_batch = 4, .rank = 3, .world_size = 4});
  EXPECT_EQ(loader.next_step().front().ids.numel(), 1);
  const std::vector<data::Batch> last = loader.next_step();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].images.shape(), (Shape{0, kHeight, kWidth, kChannels}));
  EXPECT_EQ(last[0].global_count, 1);
  EXPECT_TRUE(loader.next_step().empty());
}

TEST(DataLoader, SeekIsExact) {
  const data::ImageSet set = make_set(50);
  for (const int workers : {0, 2}) {
    const data::LoaderOptions options{
        .global_batch = 8, .micro_batch = 3, .transform = random_transform(), .workers = workers};
    const auto expected = run(set, options, 3);
    data::DataLoader loader(set, options);
    EXPECT_EQ(loader.steps_per_epoch(), 7);
    EXPECT_EQ(loader.micro_batches_per_step(), 3);
    for (const std::int64_t epoch : {2, 0, 1})
      for (const std::int64_t step : {6, 0, 3, 7}) {
        loader.seek(epoch, step);
        std::vector<Copy> rest;
        for (const Copy& batch : expected[static_cast<std::size_t>(epoch)])
          if (batch.step >= step) rest.push_back(batch);
        EXPECT_EQ(rest_of_epoch(loader), rest) << epoch << ", " << step;
        if (epoch < 2) {  // continue in the next epoch
          EXPECT_EQ(copy_of(loader.next_step().front()),
                    expected[static_cast<std::size_t>(epoch) + 1].front());
        }
      }
    EXPECT_THROW(loader.seek(-1), UsageError);
    EXPECT_THROW(loader.seek(0, 8), UsageError);
  }
}

TEST(DataLoader, IteratesOverEpochs) {
  const data::ImageSet set = make_set(30);
  const data::LoaderOptions options{.global_batch = 8, .transform = random_transform()};
  const auto expected = run(set, options, 2);
  data::DataLoader loader(set, options);
  for (const data::Batch& batch : loader.epoch(0)) {
    EXPECT_EQ(copy_of(batch), expected[0][static_cast<std::size_t>(batch.step)]);
    if (batch.step == 2) break;
  }
  std::vector<Copy> second;
  for (const data::Batch& batch : loader.epoch(1)) second.push_back(copy_of(batch));
  EXPECT_EQ(second, expected[1]);
  data::DataLoader pieces(set, {.global_batch = 8, .micro_batch = 4});
  EXPECT_THROW(pieces.epoch(0), UsageError);
}

TEST(DataLoader, StopsAfterMaxEpochs) {
  const data::ImageSet set = make_set(10);
  for (const int workers : {0, 2}) {
    data::DataLoader loader(set, {.global_batch = 4, .workers = workers, .max_epochs = 2});
    EXPECT_EQ(rest_of_epoch(loader).size(), 3u);
    EXPECT_EQ(rest_of_epoch(loader).size(), 3u);
    EXPECT_THROW(loader.next_step(), UsageError);
    loader.seek(2);
    EXPECT_THROW(loader.next_step(), UsageError);
    EXPECT_THROW(loader.seek(3), UsageError);
    loader.seek(2, 3);
    EXPECT_TRUE(loader.next_step().empty());
    loader.seek(1);
    EXPECT_EQ(rest_of_epoch(loader).size(), 3u);
  }
}

TEST(DataLoader, AnEmptySetHasNoSteps) {
  const data::ImageSet set = make_set(0);
  data::DataLoader loader(set, {});
  EXPECT_EQ(loader.steps_per_epoch(), 0);
  EXPECT_TRUE(loader.next_step().empty());
  EXPECT_TRUE(loader.next_step().empty());
}

constexpr std::size_t kBatchBytes = 64 * kPixels * sizeof(float);  // of the images; labels and ids are small

/// Gives the workers time. Their state cannot be queried.
bool eventually(const auto& condition) {
  for (int waited_ms = 0; waited_ms < 60'000; ++waited_ms) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(DataLoader, PrefetchesAcrossEpochsButNotBeyondTheLast) {
  const data::ImageSet set = make_set(256);
  const DeviceContext memory = DeviceContext::create_cpu();
  data::DataLoader loader(set, {.global_batch = 64, .prefetch = 3, .max_epochs = 2, .device = memory});
  for (int step = 0; step < 4; ++step) loader.next_step();  // all of epoch 0 has been taken
  EXPECT_TRUE(eventually([&] { return memory.memory().stats().in_use >= 3 * kBatchBytes; }));
  EXPECT_TRUE(loader.next_step().empty());
  for (int step = 0; step < 4; ++step) loader.next_step();
  EXPECT_TRUE(loader.next_step().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(memory.memory().stats().in_use, 0u);
}

TEST(DataLoader, MemoryIsBoundedAndSteady) {
  const data::ImageSet set = make_set(1000);
  unsetenv("CONVOY_MEMORY_CACHE");  // sanitizer builds set it
  const DeviceContext memory = DeviceContext::create_cpu();
  data::DataLoader loader(set, {.global_batch = 64, .workers = 3, .prefetch = 4, .device = memory});
  constexpr std::size_t kBatches = 4 + 2;  // prefetched, the current and the previous one
  for (int epoch = 0; epoch < 10; ++epoch)
    for (std::vector<data::Batch> update = loader.next_step(); !update.empty();) update = loader.next_step();
  const MemoryStats stats = memory.memory().stats();
  constexpr std::size_t kListBytes = 64 * sizeof(std::int32_t);  // labels, or ids
  const std::size_t one =
      CachingAllocator::size_class(kBatchBytes) + 2 * CachingAllocator::size_class(kListBytes);
  EXPECT_LE(stats.peak_in_use, kBatches * one);
  // Images, labels and ids per batch; the same again for the smaller batches at the end of an epoch.
  EXPECT_LE(stats.source_calls, 2 * 3 * kBatches);
}

TEST(DataLoader, AnErrorInAWorkerIsThrownAndSeekRecovers) {
  const data::ImageSet set = make_set(64 * 10);
  for (const int workers : {0, 1, 3}) {
    const DeviceContext memory =
        DeviceContext::create_cpu({.memory_limit = 4 * kBatchBytes + kBatchBytes / 2});
    data::DataLoader loader(set, {.global_batch = 64, .workers = workers, .prefetch = 2, .device = memory});
    std::vector<std::vector<data::Batch>> held;  // more than the memory can hold
    const auto take_all = [&] {
      while (true) held.push_back(loader.next_step());
    };
    EXPECT_THROW(take_all(), DeviceError);
    EXPECT_GE(held.size(), 2u);
    EXPECT_THROW(loader.next_step(), DeviceError);  // the error persists
    const auto step = static_cast<std::int64_t>(held.size());
    held.clear();
    loader.seek(0, step);
    EXPECT_EQ(loader.next_step().front().step, step);
  }
}

/// The test would hang otherwise.
TEST(DataLoader, CanBeDestroyedAtAnyTime) {
  const data::ImageSet set = make_set(500);
  for (int taken = 0; taken < 40; ++taken) {
    data::DataLoader loader(set,
                            {.global_batch = 16, .transform = random_transform(), .workers = 1 + taken % 4});
    for (int i = 0; i < taken; ++i) loader.next_step();
    if (taken % 3 == 0) loader.seek(taken);
  }
}

TEST(DataLoader, MeasuresTheWait) {
  const data::ImageSet set = make_set(2000);
  data::DataLoader loader(set, {.global_batch = 1000, .workers = 0});
  EXPECT_EQ(loader.take_wait_ms(), 0);
  loader.next_step();
  EXPECT_GT(loader.take_wait_ms(), 0);
  EXPECT_EQ(loader.take_wait_ms(), 0);
}

TEST(DataLoader, RefusesInvalidOptions) {
  const data::ImageSet set = make_set(4);
  const auto refusal = [&](const data::LoaderOptions& options) -> std::string {
    try {
      data::DataLoader loader(set, options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no UsageError";
  };
  EXPECT_THAT(refusal({.global_batch = 0}), HasSubstr("LoaderOptions::global_batch: found 0"));
  EXPECT_THAT(refusal({.micro_batch = -1}), HasSubstr("LoaderOptions::micro_batch: found -1"));
  EXPECT_THAT(refusal({.rank = 2, .world_size = 2}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refusal({.workers = -1}), HasSubstr("LoaderOptions::workers: found -1"));
  EXPECT_THAT(refusal({.prefetch = 0}), HasSubstr("prefetch 0"));
  EXPECT_THAT(refusal({.dtype = DType::f16}),
              HasSubstr("batches of f16 on cpu, expected f32, f64 or bf16, or on a GPU also f16"));
  EXPECT_THAT(refusal({.transform = {.augment = {.crop_padding = 5}}}), HasSubstr("crop=5"));
  EXPECT_THROW(data::DataLoader(data::ImageSet{}, {}), UsageError);
  EXPECT_THROW(data::DataLoader(data::ImageSet{.images = set.images, .labels = make_set(3).labels}, {}),
               UsageError);
  EXPECT_THROW(data::DataLoader(data::ImageSet{.images = set.labels, .labels = set.labels}, {}), UsageError);
}

}  // namespace
}  // namespace convoy::testing
