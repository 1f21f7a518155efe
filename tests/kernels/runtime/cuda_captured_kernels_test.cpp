// All families of kernels in one CUDA graph. No kernel may wait for the GPU, copy from the host, or use a
// host value that must come from device memory.
#include <gtest/gtest.h>

#include <array>

#include "convoy/kernels/augment.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/loss_scale.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/optimizer_step.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/softmax_cross_entropy.h"
#include "tests/kernels/runtime/graph_fixture.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::stream_of;

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
  static constexpr CrossEntropyOptions kLoss{.smoothing = 0.1, .scale = 0.5};
  static constexpr Conv2dOptions kConv{.stride = 1, .padding = 1, .relu = true};

  const std::int32_t* epoch_data() const { return static_cast<const std::int32_t*>(epoch_.view().data); }
  Random dropout_random() const {
    return {.seed = 1, .purpose = RandomPurpose::dropout, .cell = epoch_data()};
  }

  kernels::BatchNorm norm() const {
    return {gamma_.view(), beta_.view(), running_mean_.view(), running_var_.view(), {}};
  }
  kernels::SavedStatistics saved() const { return {mean_.view(), inverse_std_.view(), coefficients_.view()}; }

  void forward(CudaStream& s) const {
    kernels::augment(s, images_.view(), rows_.view(), ids_.view(), {.crop_padding = 1, .flip = true},
                     {.seed = 1, .purpose = RandomPurpose::augmentation, .cell = epoch_data()}, x_.view());
    kernels::conv2d_forward(s, x_.view(), filter_.view(), bias_.view(), c_.view(), kConv);
    kernels::batch_norm_statistics(s, norm(), c_.view(), saved());
    kernels::batch_norm_normalize(s, norm(), c_.view(), {}, saved(), n_.view());
    kernels::max_pool2d_forward(s, n_.view(), p_.view(), taps_.view(), kPool);
    kernels::nhwc_to_nchw(s, p_.view(), flat_.grad());
    kernels::dropout(s, flat_.view(), ids_.view(), 0.25, dropout_random(), dropped_.grad());
    kernels::linear_forward(s, features(dropped_), weight_.view(), class_bias_.view(), logits_.view(), false);
    kernels::softmax_cross_entropy_forward(s, logits_.view(), labels_.view(), kLoss, losses_.view(),
                                           log_sum_exp_.view(), correct_.view(), total_.view());
    kernels::argmax(s, logits_.view(), labels_found_.view());
    kernels::sum(s, losses_.view(), sum_.grad());
  }

  void backward(CudaStream& s) const {
    kernels::softmax_cross_entropy_backward(s, scale_.view(), logits_.view(), labels_.view(),
                                            log_sum_exp_.view(), kLoss, dlogits_.grad());
    kernels::matmul(s, dlogits_.view(), features(dropped_), dweight_.grad(), {.transpose_a = true});
    kernels::sum_rows(s, dlogits_.view(), dclass_bias_.grad());
    kernels::matmul(s, dlogits_.view(), weight_.view(), GradView(features(dflat_)));
    kernels::dropout(s, dflat_.view(), ids_.view(), 0.25, dropout_random(), dflat_.grad());
    kernels::nchw_to_nhwc(s, dflat_.view(), dp_.grad());
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
      flat_{gpu_, {2, 4, 3, 3}}, dropped_{gpu_, {2, 4, 3, 3}}, logits_{gpu_, {2, 5}}, mean_{gpu_, {4}},
      inverse_std_{gpu_, {4}}, coefficients_{gpu_, {2, 4}}, losses_{gpu_, {2}}, log_sum_exp_{gpu_, {2}},
      total_{gpu_, {1}}, sum_{gpu_, {1}};
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

}  // namespace
}  // namespace convoy
