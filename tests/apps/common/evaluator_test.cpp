// Tests of evaluate() with few and with many classes, on ranks that are threads.
#include "convoy/apps/data/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/random.h"
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

/// Random images of 17x16 pixels with labels of 4 classes.
data::ImageSet random_set(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * 17 * 16 * 3));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  const Random random{.seed = 5};
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(random.words(i)[0] >> 24);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 4);
  return {.images = Tensor::from(pixels, {count, 17, 16, 3}, Device::cpu()),
          .labels = Tensor::from(labels, {count}, Device::cpu())};
}

TEST(Evaluator, SelectsTheSameMistakesOnAnyNumberOfRanks) {
  const data::ImageSet set = random_set(61);
  const auto evaluate_by = [&](dist::Communicator* comm) {
    const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
    const models::Model model = models::lenet({.input = {17, 16, 3}, .classes = 4, .device = device});
    return *evaluate(model, device, set, {.batch_size = 8, .workers = 0, .comm = comm});
  };
  const Evaluation alone = evaluate_by(nullptr);
  ASSERT_EQ(alone.mistakes.size(), Evaluation::kMaxMistakes) << "random images: three quarters are wrong";
  std::vector<Evaluation> results(2);
  std::vector<std::thread> threads;
  for (auto& comm : dist::make_thread_communicators(2))
    threads.emplace_back([&, own = std::move(comm)]() mutable {
      results[static_cast<std::size_t>(own->rank())] = evaluate_by(own.get());
      own->finish();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(results[1].mistakes.empty());
  ASSERT_EQ(results[0].mistakes.size(), alone.mistakes.size());
  const std::vector<std::int32_t> labels = set.labels.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < alone.mistakes.size(); ++i) {
    const Mistake &one = alone.mistakes[i], &two = results[0].mistakes[i];
    EXPECT_EQ(one.image, two.image);
    EXPECT_EQ(one.prediction, two.prediction);
    EXPECT_EQ(one.label, labels[static_cast<std::size_t>(one.image)]);
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_EQ(results[0].mistake_images.rows(row, row + 1).to_vector<std::uint8_t>(),
              set.images.rows(one.image, one.image + 1).to_vector<std::uint8_t>());
  }
}

/// Returns a copy of [N, H, W, C] u8 images that is shifted by `shift` pixels down and right with reflected
/// borders, and then mirrored.
Tensor view_of(const Tensor& images, int shift, bool mirror) {
  const std::vector<std::uint8_t> from = images.to_vector<std::uint8_t>();
  std::vector<std::uint8_t> to(from.size());
  const std::int64_t height = images.size(1), width = images.size(2), channels = images.size(3);
  const auto inside = [](std::int64_t i, std::int64_t size) {
    return size - 1 - std::abs(size - 1 - std::abs(i));
  };
  std::size_t next = 0;
  for (std::int64_t n = 0; n < images.size(0); ++n)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t row = inside(y - shift, height);
          const std::int64_t column = inside((mirror ? width - 1 - x : x) - shift, width);
          to[next++] = from[static_cast<std::size_t>(((n * height + row) * width + column) * channels + c)];
        }
  return Tensor::from(to, images.shape(), Device::cpu());
}

TEST(Evaluator, ViewsAreAveragedWithTheirWeights) {
  const data::ImageSet set = random_set(23);
  const models::Model model = models::lenet({.input = {17, 16, 3}, .classes = 4});
  const auto logits_of = [&](const Tensor& images) {
    const NoGrad no_grad;
    const Variable pixels = Variable(images.to(DType::f32)) / 255;
    return model(pixels.value()).value().to_vector<float>();
  };
  std::vector<double> mean(23 * 4);
  for (const int shift : {0, 1, -1})
    for (const bool mirror : {false, true}) {
      const std::vector<float> logits = logits_of(view_of(set.images, shift, mirror));
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += logits[i] * (shift == 0 ? 0.25 : 0.125);
    }
  std::int64_t correct = 0;
  double loss = 0;
  for (std::size_t n = 0; n < 23; ++n) {
    const auto row = mean.begin() + static_cast<std::ptrdiff_t>(4 * n);
    const std::size_t label = n % 4;
    correct += std::max_element(row, row + 4) - row == static_cast<std::ptrdiff_t>(label) ? 1 : 0;
    double sum = 0;
    for (std::size_t c = 0; c < 4; ++c) sum += std::exp(mean[4 * n + c]);
    loss += (std::log(sum) - mean[4 * n + label]) / 23;
  }
  for (const int workers : {0, 2}) {
    const Evaluation found =
        *evaluate(model, Device::cpu(), set, {.views = true, .batch_size = 10, .workers = workers});
    EXPECT_EQ(found.count, 23);
    EXPECT_EQ(found.accuracy, static_cast<double>(correct) / 23);
    EXPECT_NEAR(found.loss, loss, 1e-5);  // f32 logits of about 1
    const Evaluation plain = *evaluate(model, Device::cpu(), set, {.batch_size = 10, .workers = workers});
    EXPECT_GT(std::abs(plain.loss - loss), 1e-4) << "the views make no difference";
  }
}

TEST(Evaluator, CountsPredictionsAndTop5OnAllRanks) {
  const data::ImageSet set = random_set(23);  // of 4 classes
  const models::Model model = models::lenet({.input = {17, 16, 3}, .classes = 9});
  const Evaluation whole = *evaluate(model, Device::cpu(), set,
                                     {.keep_logits = true, .top5 = true, .batch_size = 10, .workers = 0});
  const auto logits = whole.logits.to_vector<float>();
  const auto labels = set.labels.to_vector<std::int32_t>();
  std::vector<std::int64_t> predicted(9);
  int top5 = 0;
  for (std::size_t n = 0; n < 23; ++n) {
    std::vector<std::pair<float, std::int32_t>> order;
    for (std::int32_t c = 0; c < 9; ++c) order.emplace_back(-logits[9 * n + static_cast<std::size_t>(c)], c);
    std::sort(order.begin(), order.end());
    ++predicted[static_cast<std::size_t>(order[0].second)];
    top5 +=
        std::any_of(order.begin(), order.begin() + 5, [&](const auto& e) { return e.second == labels[n]; });
  }
  EXPECT_EQ(whole.predicted, predicted);
  EXPECT_EQ(whole.top5_accuracy, top5 / 23.0);
  EXPECT_GT(top5, 0);
  EXPECT_LT(top5, 23);
  EXPECT_EQ(evaluate(model, Device::cpu(), set, {.batch_size = 10, .workers = 0})->top5_accuracy,
            std::nullopt);

  std::vector<std::thread> threads;
  for (auto& comm : dist::make_thread_communicators(2))
    threads.emplace_back([&, own = std::move(comm)]() mutable {
      const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
      const models::Model replica = models::lenet({.input = {17, 16, 3}, .classes = 9, .device = device});
      const Evaluation half =
          *evaluate(replica, device, set, {.top5 = true, .batch_size = 4, .workers = 0, .comm = own.get()});
      own->finish();
      EXPECT_EQ(half.predicted, predicted);
      EXPECT_EQ(half.top5_accuracy, whole.top5_accuracy);
    });
  for (std::thread& thread : threads) thread.join();
}

// The values of scikit-learn's precision_recall_fscore_support for the labels 0 0 0 1 1 2 and the predictions
// 0 0 1 1 0 4: classes 2 and 4 have no right prediction, and class 3 has neither images nor predictions.
TEST(Evaluator, ScoresAreThoseOfScikitLearn) {
  Evaluation result;
  result.images = {3, 2, 1, 0, 0};
  result.predicted = {3, 2, 0, 0, 1};
  result.correct = {2, 1, 0, 0, 0};
  const std::vector<Evaluation::Scores> scores = result.scores_by_class();
  ASSERT_EQ(scores.size(), 5u);
  EXPECT_DOUBLE_EQ(scores[0].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores[0].f1, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores[1].precision, 0.5);
  EXPECT_EQ(scores[2].precision, 0);
  EXPECT_EQ(scores[2].f1, 0);
  EXPECT_EQ(scores[4].recall, 0);
  const Evaluation::Scores macro = result.macro_scores();
  EXPECT_DOUBLE_EQ(macro.precision, (2.0 / 3 + 0.5) / 4);
  EXPECT_DOUBLE_EQ(macro.recall, (2.0 / 3 + 0.5) / 4);
  EXPECT_DOUBLE_EQ(macro.f1, (2.0 / 3 + 0.5) / 4);
  result.correct = {1, 1, 0, 0, 0};
  EXPECT_DOUBLE_EQ(result.scores_by_class()[0].f1, 1.0 / 3);
}

}  // namespace
}  // namespace convoy::testing
