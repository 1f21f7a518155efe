// Tests of evaluate() with few and with many classes, on ranks that are threads.
#include "convoy/apps/common/evaluator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/models/models.h"

namespace convoy::testing {
namespace {

/// Evaluates images of one color on two ranks. A model predicts the same class for all of them.
std::vector<Evaluation> evaluate_on_two_ranks(int classes) {
  const data::ImageSet set{
      .images = Tensor::zeros({5, 16, 16, 3}, DType::u8, Device::cpu()),
      .labels = Tensor::from(std::vector<std::int32_t>{0, 1, 1, 2, classes - 1}, {5}, Device::cpu())};
  std::vector<Evaluation> results(2);
  std::vector<std::thread> threads;
  for (auto& comm : dist::make_thread_communicators(2))
    threads.emplace_back([&, own = std::move(comm)]() mutable {
      const DeviceContext device = DeviceContext::create_cpu({.threads = 1});  // not the one of other tests
      const models::Model model = models::lenet({.input = {16, 16, 3}, .classes = classes, .device = device});
      results[static_cast<std::size_t>(own->rank())] =
          *evaluate(model, device, set, {.batch_size = 2, .workers = 0, .comm = own.get()});
      own->finish();
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(Evaluator, CountsEachClassOnAllRanks) {
  for (const int classes : {10, Evaluation::kMaxConfusionClasses + 1}) {
    for (const Evaluation& result : evaluate_on_two_ranks(classes)) {
      EXPECT_EQ(result.count, 5);
      const auto images = [&](int label) { return result.images[static_cast<std::size_t>(label)]; };
      EXPECT_EQ(images(0), 1);
      EXPECT_EQ(images(1), 2);
      EXPECT_EQ(images(2), 1);
      EXPECT_EQ(images(classes - 1), 1);
      const auto correct = std::accumulate(result.correct.begin(), result.correct.end(), std::int64_t{0});
      EXPECT_EQ(result.accuracy, static_cast<double>(correct) / 5);
    }
  }
}

TEST(Evaluator, HasAConfusionMatrixForUpToAThousandClasses) {
  const Evaluation small = evaluate_on_two_ranks(10)[1], large = evaluate_on_two_ranks(1001)[1];
  EXPECT_TRUE(large.confusion.empty());
  ASSERT_EQ(small.confusion.size(), 100U);
  for (std::size_t label = 0; label < 10; ++label) {
    const auto row = small.confusion.begin() + static_cast<std::ptrdiff_t>(10 * label);
    EXPECT_EQ(std::accumulate(row, row + 10, std::int64_t{0}), small.images[label]);
    EXPECT_EQ(row[static_cast<std::ptrdiff_t>(label)], small.correct[label]);
  }
}

}  // namespace
}  // namespace convoy::testing
