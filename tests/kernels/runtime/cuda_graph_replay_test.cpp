// Replays of captured work: equal results, private memory, and times of each replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/kernels/augment.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/optimizer_step.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/softmax.h"
#include "convoy/kernels/strided_copy.h"
#include "tests/kernels/runtime/graph_fixture.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::stream_of;
using testing::values_of;
using testing::write;
using Step = testing::GraphStep;

constexpr std::int64_t kReplayCount = testing::kGraphCount;
constexpr std::size_t kBytes = kReplayCount * sizeof(float);

class CudaGraphReplay : public testing::GraphTest {};

TEST_F(CudaGraphReplay, MatchesEagerExecution) {
  for_each_gpu([](const DeviceContext& gpu) {
    const Step eager(gpu), captured(gpu);
    CudaGraph graph(gpu, [&] { captured.enqueue(); });
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      write(gpu, values_of(seed), eager.x);
      write(gpu, values_of(seed), captured.x);
      eager.enqueue();
      graph.replay();
      captured.expect_equals(eager);
    }
  });
}

TEST_F(CudaGraphReplay, CaptureRunsNothing) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, -1));
  CudaGraph graph(
      gpu, [&] { kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view()); });
  expect_same_bits(x.values(), Array<float>({kReplayCount}, -1));
  graph.replay();
  expect_same_bits(x.values(), Array<float>({kReplayCount}, 0));
}

TEST_F(CudaGraphReplay, RunsInStreamOrder) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    CudaGraph doubles(gpu, [&] { kernels::add(stream_of(gpu), x.view(), x.view(), x.view()); });
    for (int i = 0; i < 3; ++i) {
      doubles.replay();
      kernels::scale(stream_of(gpu), x.view(), 0.25, x.grad());
      doubles.replay();
    }
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 1));
  });
}

TEST_F(CudaGraphReplay, MemoryOfACaptureIsPrivate) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, {kReplayCount}), y(gpu, {kReplayCount});
    void* scratch = nullptr;
    const auto negate_through_scratch = [&] {
      const DeviceArray<float> half(gpu, {kReplayCount});
      scratch = half.view().data;
      kernels::scale(stream_of(gpu), x.view(), -0.5, half.grad());
      kernels::scale(stream_of(gpu), half.view(), 2, y.grad());
    };
    CudaGraph graph(gpu, negate_through_scratch);
    EXPECT_EQ(graph.pool_bytes(), gpu.memory().stats().in_pools);
    EXPECT_GE(graph.pool_bytes(), kBytes);
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      write(gpu, values_of(seed), x);
      graph.replay();
      // Allocations while the replay is pending get other memory.
      const DeviceArray<float> other(gpu, {kReplayCount}), another(gpu, {kReplayCount});
      EXPECT_NE(other.view().data, scratch);
      EXPECT_NE(another.view().data, scratch);
      kernels::fill(stream_of(gpu), 7, other.view());
      kernels::fill(stream_of(gpu), 8, another.view());
      Array<float> expected = values_of(seed);
      for (float& value : expected) value = -value;
      expect_same_bits(y.values(), expected);
    }
    void* const first_scratch = scratch;
    const CudaGraph second(gpu, negate_through_scratch);
    EXPECT_NE(scratch, first_scratch);
  });
}

TEST_F(CudaGraphReplay, MemoryOfACaptureIsReusedAndReleasedWithTheGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, {kReplayCount});
    gpu.memory().trim();
    const MemoryStats before = gpu.memory().stats();
    {
      const CudaGraph graph(gpu, [&] {
        for (int i = 0; i < 10; ++i) {
          const DeviceArray<float> scratch(gpu, {kReplayCount});
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), scratch.view());
        }
      });
      EXPECT_LT(graph.pool_bytes(), 2 * kBytes) << "one block, reused ten times";
      EXPECT_EQ(gpu.memory().stats().in_use, before.in_use + graph.pool_bytes());
    }
    gpu.memory().trim();
    EXPECT_EQ(gpu.memory().stats().in_use, before.in_use);
    EXPECT_EQ(gpu.memory().stats().cached, 0u);
  });
}

TEST_F(CudaGraphReplay, BlocksAllocatedInACaptureMayOutliveTheGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, values_of(3));
    const MemoryStats before = gpu.memory().stats();
    std::optional<DeviceArray<float>> inside;
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      inside.emplace(gpu, Shape{kReplayCount});
      kernels::scale(stream_of(gpu), x.view(), 1, inside->grad());
    });
    graph->replay();
    graph.reset();
    const DeviceArray<float> other(gpu, {kReplayCount});
    EXPECT_NE(other.view().data, inside->view().data);
    kernels::fill(stream_of(gpu), 7, other.view());
    expect_same_bits(inside->values(), values_of(3));
    inside.reset();
    EXPECT_EQ(gpu.memory().stats().in_pools, 0u);
    EXPECT_LE(gpu.memory().stats().in_use - before.in_use, 2 * kBytes) << "only `other` is in use";
  });
}

TEST_F(CudaGraphReplay, DestructorWaitsForReplays) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event end = Event::timed(gpu.stream());
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      const DeviceArray<float> scratch(gpu, {kReplayCount});
      kernels::scale(stream_of(gpu), x.view(), 3, scratch.grad());
      kernels::scale(stream_of(gpu), scratch.view(), 1, x.grad());
      end.record();
    });
    graph->replay();
    graph->replay();
    graph.reset();
    EXPECT_TRUE(end.reached());
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 9));
  });
}

TEST_F(CudaGraphReplay, TwoGraphsAlternate) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    const auto times = [&](double factor) {
      return [&gpu, &x, factor] {
        const DeviceArray<float> scratch(gpu, {kReplayCount});
        kernels::scale(stream_of(gpu), x.view(), factor, scratch.grad());
        kernels::scale(stream_of(gpu), scratch.view(), 1, x.grad());
      };
    };
    CudaGraph triple(gpu, times(3)), halve(gpu, times(0.5));
    for (int i = 0; i < 4; ++i) {
      triple.replay();
      halve.replay();
      halve.replay();
    }
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 81.0f / 256));
  });
}

TEST_F(CudaGraphReplay, CapturedCopiesUseStagingMemory) {
  for_each_gpu([](const DeviceContext& gpu) {
    auto* const in = static_cast<float*>(gpu.staging().allocate(kBytes));
    float* out = nullptr;
    const DeviceArray<float> x(gpu, {kReplayCount});
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      copy_bytes_async(Device::cpu(), ConstView(in, {kReplayCount}, DType::f32), gpu, x.view());
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      out = static_cast<float*>(gpu.staging().allocate(kBytes));
      copy_bytes_async(gpu, x.view(), Device::cpu(), View{out, {kReplayCount}, DType::f32});
    });
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      const Array<float> values = values_of(seed);
      std::copy(values.begin(), values.end(), in);
      graph->replay();
      gpu.synchronize();
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(out[i], std::max(0.0f, values[i]));
    }
    gpu.staging().release(out, kBytes);
    void* const other = gpu.staging().allocate(kBytes);
    EXPECT_NE(other, out) << "a replay writes to this block";
    gpu.staging().release(other, kBytes);
    graph.reset();
    gpu.staging().release(in, kBytes);
    EXPECT_EQ(gpu.staging().stats().in_use, 0u);
  });
}

TEST_F(CudaGraphReplay, CapturesForkedStreams) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    CudaStream& main = stream_of(gpu);
    CudaStream side(0, gpu.memory());
    const DeviceArray<float> x(gpu, {kReplayCount}), y(gpu, {kReplayCount}), z(gpu, {kReplayCount}),
        total(gpu, {kReplayCount});
    CudaGraph graph(gpu, [&] {
      CudaEvent fork(0), join(0);
      kernels::unary_forward(main, kernels::UnaryOp::relu, x.view(), y.view());
      main.record(fork);
      side.wait(fork);
      EXPECT_TRUE(side.is_capturing());
      kernels::scale(side, y.view(), 3, y.grad());
      side.record(join);
      kernels::scale(main, x.view(), 2, z.grad());
      main.wait(join);
      kernels::add(main, y.view(), z.view(), total.view());
    });
    EXPECT_FALSE(side.is_capturing());
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      const Array<float> values = values_of(seed);
      write(gpu, values, x);
      graph.replay();
      Array<float> expected({kReplayCount});
      for (std::size_t i = 0; i < values.size(); ++i)
        expected[i] = 3 * std::max(0.0f, values[i]) + 2 * values[i];
      expect_same_bits(total.values(), expected);
    }
  });
}

TEST_F(CudaGraphReplay, TimedEventsMeasureEachReplay) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event begin = Event::timed(gpu.stream()), middle = Event::timed(gpu.stream()),
          end = Event::timed(gpu.stream()), outside = Event::timed(gpu.stream());
    CudaGraph graph(gpu, [&] {
      begin.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      middle.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      end.record();
    });
    outside.record();
    graph.replay();
    const double first = elapsed_ms(outside, end);
    EXPECT_TRUE(end.reached());
    EXPECT_GT(elapsed_ms(begin, end), 0);
    EXPECT_NEAR(elapsed_ms(begin, middle) + elapsed_ms(middle, end), elapsed_ms(begin, end), 0.01);
    graph.replay();
    EXPECT_GT(elapsed_ms(outside, end), first) << "the time of the second replay";
  });
}

TEST_F(CudaGraphReplay, TimedEventsOfAllStreamsShareOneClock) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    CudaStream side(0, gpu.memory());
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event fork(gpu.stream()), join(gpu.stream());
    Event start = Event::timed(gpu.stream()), begin = Event::timed(gpu.stream()),
          side_begin = Event::timed(gpu.stream()), side_end = Event::timed(gpu.stream()),
          end = Event::timed(gpu.stream());
    const auto work = [&] {
      begin.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      fork.record(gpu.stream());
      fork.wait(std::ref(side));
      side_begin.record(std::ref(side));
      kernels::unary_forward(side, kernels::UnaryOp::relu, x.view(), x.view());
      side_end.record(std::ref(side));
      join.record(std::ref(side));
      join.wait(gpu.stream());
      end.record();
    };
    CudaGraph graph(gpu, work);
    for (const bool replayed : {false, true, true}) {
      SCOPED_TRACE(replayed);
      start.record();
      if (replayed) {
        graph.replay();
      } else {
        work();
      }
      end.wait();
      EXPECT_TRUE(side_end.reached());
      EXPECT_GE(elapsed_ms(start, begin), 0) << "the time of an earlier round";
      EXPECT_GE(elapsed_ms(begin, side_begin), 0);
      EXPECT_GT(elapsed_ms(side_begin, side_end), 0);
      EXPECT_GE(elapsed_ms(side_end, end), 0);
    }
  });
}

TEST_F(CudaGraphReplay, TimedEventsWorkOutsideACapture) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
  Event begin = Event::timed(gpu.stream()), end = Event::timed(gpu.stream());
  EXPECT_TRUE(begin.reached());
  EXPECT_THROW(elapsed_ms(begin, end), UsageError);
  begin.record();
  kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
  end.record();
  end.wait();
  EXPECT_TRUE(end.reached());
  EXPECT_GT(elapsed_ms(begin, end), 0);
  EXPECT_THROW(elapsed_ms(begin, Event::timed(DeviceContext(Device::cpu()).stream())), UsageError);
}

TEST_F(CudaGraphReplay, AutotuneIsOffDuringCapture) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  EXPECT_TRUE(stream_of(gpu).autotune());
  const CudaGraph graph(gpu, [&] { EXPECT_FALSE(stream_of(gpu).autotune()); });
  EXPECT_TRUE(stream_of(gpu).autotune());
}

// All families of kernels in one CUDA graph. No kernel may wait for the GPU, copy from the host, or use a
// host value that must come from device memory.

template <class T>
Array<T> values(Shape shape, std::initializer_list<T> list) {
  Array<T> result(shape);
  std::copy(list.begin(), list.end(), result.begin());
  return result;
}

Array<std::uint8_t> pixels(Shape shape) {
  Array<std::uint8_t> result(shape);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::uint8_t>(i * 37 % 251);
  return result;
}

/// A training step of a small network by direct calls of kernels: two images of 6 x 6 pixels, four filters,
/// five classes.
class TrainingStep {
 public:
  explicit TrainingStep(const DeviceContext& device) : gpu_(device) {}

  void set_epoch(std::int32_t epoch) {
    const Array<std::int32_t> value({1}, epoch);
    copy_bytes(Device::cpu(), value.view(), gpu_, epoch_.view());
  }

  void enqueue() const {
    CudaStream& s = stream_of(gpu_);
    forward(s);
    backward(s);
    optimizer_step(s);
  }

  void expect_equals(const TrainingStep& other) const {
    expect_same_bits(losses_.values(), other.losses_.values());
    expect_same_bits(total_.values(), other.total_.values());
    expect_same_bits(labels_found_.values(), other.labels_found_.values());
    expect_same_bits(dx_.values(), other.dx_.values());
    expect_same_bits(running_var_.values(), other.running_var_.values());
    expect_same_bits(filter_.values(), other.filter_.values());
    expect_same_bits(filter_copy_.values(), other.filter_copy_.values());
    expect_same_bits(weight_.values(), other.weight_.values());
    expect_same_bits(gamma_.values(), other.gamma_.values());
    expect_same_bits(norm_.values(), other.norm_.values());
    expect_same_bits(steps_.values(), other.steps_.values());
    expect_same_bits(scale_.values(), other.scale_.values());
  }

 private:
  static constexpr Pool2dOptions kPool{.kernel = 2, .stride = 2};
  kernels::CrossEntropyTarget target() const {
    return {.of_rows = labels_.view(), .smoothing = 0.1, .scale = 0.5};
  }
  static constexpr Conv2dOptions kConv{.stride = 1, .padding = 1, .relu = true};

  const std::int32_t* epoch_data() const { return static_cast<const std::int32_t*>(epoch_.view().data); }
  Random dropout_random() const {
    return {.seed = 1, .purpose = RandomPurpose::dropout, .cell = epoch_data()};
  }

  /// The pooled images as [N, C, H, W]: the index space of flatten(), and how both arrays are read there.
  static Shape nchw() { return {2, 4, 3, 3}; }
  static kernels::Strides flat_strides() { return kernels::Strides::row_major(nchw()); }
  static kernels::Strides image_strides() { return {.of_axis = {36, 1, 12, 4}}; }

  kernels::BatchNorm norm() const {
    return {gamma_.view(), beta_.view(), running_mean_.view(), running_var_.view(), {}};
  }
  kernels::SavedStatistics saved() const { return {mean_.view(), inverse_std_.view(), coefficients_.view()}; }

  void forward(CudaStream& s) const {
    kernels::augment(s, images_.view(), rows_.view(), ids_.view(), {.crop_padding = 1, .flip = true},
                     {.seed = 1, .purpose = RandomPurpose::augmentation, .cell = epoch_data()}, x_.view());
    kernels::conv2d_forward(s, x_.view(), filter_.view(), bias_.view(), c_.view(), kConv);
    kernels::batch_norm_forward(s, norm(), c_.view(), {}, saved(), n_.view());
    kernels::max_pool2d_forward(s, n_.view(), p_.view(), taps_.view(), kPool);
    kernels::strided_copy(s, nchw(), p_.view(), image_strides(), flat_.grad(), flat_strides());
    kernels::dropout(s, flat_.view(), ids_.view(), 0.25, dropout_random(), dropped_.grad());
    kernels::linear_forward(s, features(dropped_), weight_.view(), class_bias_.view(), logits_.view(), false);
    kernels::softmax_cross_entropy_forward(s, logits_.view(), target(), losses_.view(), log_sum_exp_.view(),
                                           correct_.view(), total_.view());
    kernels::max_axis(s, {logits_.view().data, {2, 5, 1}, DType::f32}, largest_.view(), labels_found_.view());
    kernels::sum(s, losses_.view(), sum_.grad());
  }

  void backward(CudaStream& s) const {
    kernels::softmax_cross_entropy_backward(s, scale_.view(), logits_.view(), target(), log_sum_exp_.view(),
                                            dlogits_.grad());
    kernels::matmul(s, dlogits_.view(), features(dropped_), dweight_.grad(), {.transpose_a = true});
    kernels::sum_rows(s, dlogits_.view(), dclass_bias_.grad());
    kernels::matmul(s, dlogits_.view(), weight_.view(), GradView(features(dflat_)));
    kernels::dropout(s, dflat_.view(), ids_.view(), 0.25, dropout_random(), dflat_.grad());
    kernels::strided_copy(s, nchw(), dflat_.view(), flat_strides(), dp_.grad(), image_strides());
    kernels::max_pool2d_backward(s, dp_.view(), taps_.view(), dn_.grad(), kPool);
    kernels::batch_norm_backward(s, norm(), {dn_.view(), c_.view(), {}}, saved(),
                                 {.x = dc_.grad(), .gamma = dgamma_.grad(), .beta = dbeta_.grad()});
    kernels::unary_backward(s, kernels::UnaryOp::relu, dc_.view(), c_.view(), dc_.grad());
    kernels::conv2d_backward_filter(s, dc_.view(), x_.view(), dfilter_.grad(), kConv);
    kernels::conv2d_backward_data(s, dc_.view(), filter_.view(), dx_.grad(), kConv);
  }

  void optimizer_step(CudaStream& s) const {
    const std::array<ConstView, 4> gradients = {dfilter_.view(), dgamma_.view(), dbeta_.view(),
                                                dweight_.view()};
    kernels::count_non_finite(s, gradients, non_finite_.view());
    kernels::global_norm(s, gradients, norm_.view());
    kernels::clip_coefficient(s, norm_.view(), 1, scale_.view(), coefficient_.view());
    const kernels::StepScalars scalars{.lr = lr_.view(),
                                       .grad_scale = coefficient_.view(),
                                       .skip = non_finite_.view(),
                                       .steps = steps_.view()};
    kernels::sgd_step(s,
                      {{{{filter_.view(), dfilter_.view(), filter_momentum_.view(), filter_copy_.view()}},
                        {.momentum = 0.9}},
                       {{{weight_.view(), dweight_.view(), weight_momentum_.view(), {}}}, {.momentum = 0.5}}},
                      scalars);
    kernels::adam_step(s, {{{{gamma_.view(), dgamma_.view(), first_.view(), second_.view(), {}}}, {}}},
                       scalars);
    kernels::update_loss_scale(s, non_finite_.view(),
                               {scale_.view(), good_steps_.view(), skipped_.view(), failed_.view()},
                               {.interval = 2});
  }

  /// Returns a view of [2, 4, 3, 3] as [2, 36].
  static View features(const DeviceArray<float>& array) { return {array.view().data, {2, 36}, DType::f32}; }

  using Floats = DeviceArray<float>;
  using Integers = DeviceArray<std::int32_t>;
  using Doubles = DeviceArray<double>;

  DeviceContext gpu_;
  DeviceArray<std::uint8_t> images_{gpu_, pixels({4, 6, 6, 3})};
  Integers rows_{gpu_, values<std::int32_t>({2}, {3, 1})}, ids_{gpu_, values<std::int32_t>({2}, {30, 10})},
      labels_{gpu_, values<std::int32_t>({2}, {4, 2})}, epoch_{gpu_, Array<std::int32_t>({1}, 0)};
  // Activations.
  Floats x_{gpu_, {2, 6, 6, 3}}, c_{gpu_, {2, 6, 6, 4}}, n_{gpu_, {2, 6, 6, 4}}, p_{gpu_, {2, 3, 3, 4}},
      flat_{gpu_, {2, 4, 3, 3}}, dropped_{gpu_, {2, 4, 3, 3}}, logits_{gpu_, {2, 5}}, largest_{gpu_, {2, 1}},
      mean_{gpu_, {4}}, inverse_std_{gpu_, {4}}, coefficients_{gpu_, {2, 4}}, losses_{gpu_, {2}},
      log_sum_exp_{gpu_, {2, 2}}, total_{gpu_, {1}}, sum_{gpu_, {1}};
  DeviceArray<std::uint8_t> taps_{gpu_, {2, 3, 3, 4}};
  Integers correct_{gpu_, {2}}, labels_found_{gpu_, {2}};
  // Parameters, running statistics and optimizer state.
  Floats filter_{gpu_, Array<float>::random({4, 3, 3, 3}, 1)}, bias_{gpu_, Array<float>::random({4}, 2)},
      gamma_{gpu_, Array<float>({4}, 1)}, beta_{gpu_, Array<float>({4}, 0)},
      running_mean_{gpu_, Array<float>({4}, 0)}, running_var_{gpu_, Array<float>({4}, 1)},
      weight_{gpu_, Array<float>::random({5, 36}, 3)}, class_bias_{gpu_, Array<float>::random({5}, 4)},
      filter_momentum_{gpu_, Array<float>({4, 3, 3, 3}, 0)}, weight_momentum_{gpu_, Array<float>({5, 36}, 0)},
      first_{gpu_, Array<float>({4}, 0)}, second_{gpu_, Array<float>({4}, 0)};
  DeviceArray<bfloat16> filter_copy_{gpu_, {4, 3, 3, 3}};
  // Gradients.
  Floats dlogits_{gpu_, {2, 5}}, dweight_{gpu_, {5, 36}}, dclass_bias_{gpu_, {5}}, dflat_{gpu_, {2, 4, 3, 3}},
      dp_{gpu_, {2, 3, 3, 4}}, dn_{gpu_, {2, 6, 6, 4}}, dc_{gpu_, {2, 6, 6, 4}}, dgamma_{gpu_, {4}},
      dbeta_{gpu_, {4}}, dfilter_{gpu_, {4, 3, 3, 3}}, dx_{gpu_, {2, 6, 6, 3}};
  // Scalars of the step.
  Floats scale_{gpu_, Array<float>({1}, 8)};
  Doubles lr_{gpu_, Array<double>({1}, 0.1)}, norm_{gpu_, {1}}, coefficient_{gpu_, {1}},
      steps_{gpu_, Array<double>({1}, 0)};
  Integers non_finite_{gpu_, {1}}, good_steps_{gpu_, Array<std::int32_t>({1}, 0)},
      skipped_{gpu_, Array<std::int32_t>({1}, 0)}, failed_{gpu_, Array<std::int32_t>({1}, 0)};
};

class CudaCapturedKernels : public testing::GraphTest {};

TEST_F(CudaCapturedKernels, MatchEagerExecution) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0, {.deterministic = true});
    TrainingStep(gpu).enqueue();  // a first step outside the capture, which initializes the libraries
    TrainingStep eager(gpu), captured(gpu);
    CudaGraph graph(gpu, [&] { captured.enqueue(); });
    for (std::int32_t epoch = 0; epoch < 3; ++epoch) {
      eager.set_epoch(epoch);
      captured.set_epoch(epoch);
      eager.enqueue();
      graph.replay();
      captured.expect_equals(eager);
    }
  });
}

// Work that cannot be captured: the error messages, and that the device stays usable.

using Step = testing::GraphStep;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = testing::kGraphCount;

/// Tests of captures that fail.
class CudaCapture : public testing::GraphTest {
 protected:
  /// Expects that capturing `work` throws a CaptureError with `message`, and that the GPU can then run and
  /// capture work.
  void expect_capture_error(const std::function<void(const DeviceContext&)>& work, const char* message) {
    SCOPED_TRACE(message);
    for_each_gpu([&](const DeviceContext& gpu) {
      const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
      try {
        const CudaGraph graph(gpu, [&] {
          const DeviceArray<float> scratch(gpu, {kCount});
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), scratch.view());
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, scratch.view(), y.view());
          work(gpu);
        });
        ADD_FAILURE() << "no exception";
      } catch (const CaptureError& error) {
        EXPECT_THAT(error.what(), HasSubstr(message));
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
      expect_usable(gpu, y);
    });
  }
  static void expect_usable(const DeviceContext& gpu, const DeviceArray<float>& y) {
    expect_same_bits(y.values(), Array<float>({kCount}, -1));
    EXPECT_FALSE(stream_of(gpu).is_capturing());
    EXPECT_EQ(gpu.memory().stats().in_pools, 0u);
    const Step eager(gpu), captured(gpu);
    write(gpu, values_of(1), eager.x);
    write(gpu, values_of(1), captured.x);
    eager.enqueue();
    CudaGraph graph(gpu, [&] { captured.enqueue(); });
    graph.replay();
    captured.expect_equals(eager);
  }
};

TEST_F(CudaCapture, RethrowsErrorsOfTheWork) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
  EXPECT_THROW(CudaGraph(gpu,
                         [&] {
                           kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), y.view());
                           throw NumericError("not a number");
                         }),
               NumericError);
  expect_usable(gpu, y);
}

TEST_F(CudaCapture, RejectsHostSynchronization) {
  expect_capture_error([](const DeviceContext& gpu) { gpu.synchronize(); },
                       "cannot capture a synchronization of the host with the stream");
}

TEST_F(CudaCapture, RejectsBlockingCopies) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        x.values();
      },
      "cannot capture a blocking copy between a GPU and the host");
}

TEST_F(CudaCapture, RejectsCopiesFromPageableMemory) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        const Array<float> host({kCount}, 1);
        copy_bytes_async(Device::cpu(), host.view(), gpu, x.view());
      },
      "host memory that is not its staging memory");
}

TEST_F(CudaCapture, RejectsHostQueriesOfCapturedEvents) {
  const auto with_captured_event = [](const DeviceContext& gpu, const auto& query) {
    CudaEvent event(0);
    stream_of(gpu).record(event);
    query(event);
  };
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        with_captured_event(gpu, [](const CudaEvent& event) { event.wait(); });
      },
      "cudaErrorCapturedEvent");
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        with_captured_event(gpu, [](const CudaEvent& event) { event.reached(); });
      },
      "cudaErrorCapturedEvent");
}

TEST_F(CudaCapture, RejectsAllocationsThatAreTooLarge) {
  expect_capture_error([](const DeviceContext& gpu) { gpu.memory().allocate(std::size_t{1} << 50); },
                       "out of memory on cuda:0: asked for 1024.00 TiB");
}

TEST_F(CudaCapture, RejectsWaitsForWorkOutsideTheCapture) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        CudaStream side(0, gpu.memory());
        CudaEvent event(0);
        side.record(event);
        stream_of(gpu).wait(event);
      },
      "cudaErrorStreamCaptureIsolation");
}

TEST_F(CudaCapture, RejectsAForkedStreamWithoutAJoin) {
  std::vector<std::unique_ptr<CudaStream>> sides;  // must outlive the capture
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        CudaStream& side = *sides.emplace_back(std::make_unique<CudaStream>(0, gpu.memory()));
        CudaEvent fork(0);
        stream_of(gpu).record(fork);
        side.wait(fork);
        const DeviceArray<float> x(gpu, {kCount});
        kernels::unary_forward(side, kernels::UnaryOp::relu, x.view(), x.view());
      },
      "the captured stream does not wait for the captured work of another stream");
}

TEST_F(CudaCapture, RejectsIgnoredErrors) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        CudaEvent event(0);
        stream_of(gpu).record(event);
        try {
          event.wait();
        } catch (const DeviceError&) {
        }
      },
      "a call that cannot be captured invalidated the capture, and its error was ignored");
}

TEST_F(CudaCapture, RejectsReplaysAndNestedCaptures) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
    CudaGraph inner(
        gpu, [&] { kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), y.view()); });
    EXPECT_THROW(CudaGraph(gpu, [&] { inner.replay(); }), CaptureError);
    EXPECT_THROW(CudaGraph(gpu, [&] { CudaGraph(gpu, [] {}); }), UsageError);
    expect_usable(gpu, y);
    inner.replay();
    expect_same_bits(y.values(), Array<float>({kCount}, 0));
  });
}

TEST_F(CudaCapture, AllowsDestructionOfAnotherGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const Step eager(gpu), captured(gpu);
    write(gpu, values_of(1), eager.x);
    write(gpu, values_of(1), captured.x);
    auto old = std::make_unique<CudaGraph>(gpu, [&] { eager.enqueue(); });
    old->replay();
    CudaGraph graph(gpu, [&] {
      old.reset();
      captured.enqueue();
    });
    graph.replay();
    captured.expect_equals(eager);
  });
}

}  // namespace
}  // namespace convoy
