// Tests of kernels whose last block combines the results of all (kernels/cuda/primitives/last_block.h), and of the
// same batch norm by clusters.
#include "convoy/kernels/normalization.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/kernels/batchnorm_arrays.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::Fusion;
using testing::Norm;

constexpr Fusion kRelu{.training = true, .relu = true, .residual = false};

CudaStream& block_stream(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

void expect_tickets_are_zero(const DeviceContext& gpu) {
  Array<std::int32_t> found({CudaStream::kTickets});
  copy_bytes(gpu, View(block_stream(gpu).tickets(), found.shape(), DType::i32), Device::cpu(), found.view());
  expect_same_bits(found, Array<std::int32_t>({CudaStream::kTickets}, 0));
}

/// The arrays of a batch norm with a ReLU on a GPU. enqueue() starts both directions without waiting.
class Step {
 public:
  Step(const DeviceContext& gpu, const Norm<float>& norm)
      : gpu_(gpu),
        x_(gpu, norm.x),
        dy_(gpu, norm.dy),
        y_(gpu, norm.y),
        dx_(gpu, norm.dx),
        gamma_(gpu, norm.gamma),
        beta_(gpu, norm.beta),
        mean_(gpu, norm.mean),
        inverse_std_(gpu, norm.inverse_std),
        coefficients_(gpu, norm.coefficients),
        running_mean_(gpu, norm.running_mean),
        running_var_(gpu, norm.running_var),
        dgamma_(gpu, norm.dgamma),
        dbeta_(gpu, norm.dbeta) {}

  void enqueue() const { enqueue_on(block_stream(gpu_)); }
  void enqueue_on(CudaStream& s) const {
    const kernels::BatchNorm norm{gamma_.view(),
                                  beta_.view(),
                                  running_mean_.view(),
                                  running_var_.view(),
                                  {.activation = FusedActivation::relu}};
    const kernels::SavedStatistics saved{mean_.view(), inverse_std_.view(), coefficients_.view()};
    kernels::batch_norm_forward(s, norm, x_.view(), {}, saved, y_.view());
    kernels::batch_norm_backward(s, norm, {dy_.view(), x_.view(), {}}, saved,
                                 {.x = dx_.grad(), .gamma = dgamma_.grad(), .beta = dbeta_.grad()});
  }
  void expect_equals(const Norm<float>& expected) const {
    expect_same_bits(y_.values(), expected.y);
    expect_same_bits(inverse_std_.values(), expected.inverse_std);
    expect_same_bits(dx_.values(), expected.dx);
    expect_same_bits(dgamma_.values(), expected.dgamma);
    expect_same_bits(dbeta_.values(), expected.dbeta);
  }

 private:
  DeviceContext gpu_;
  DeviceArray<float> x_, dy_, y_, dx_, gamma_, beta_, mean_, inverse_std_, coefficients_, running_mean_,
      running_var_, dgamma_, dbeta_;
};

/// Returns the results of a Step.
Norm<float> computed(const DeviceContext& gpu, Norm<float> norm) {
  forward(gpu, norm, kRelu);
  backward(gpu, norm, kRelu, GradMode::overwrite);
  return norm;
}

class CudaLastBlock : public testing::GpuTest {
 protected:
  const testing::ScopedClusters scope_{"0"};

  /// Calls f() for contexts without clusters and with them.
  template <class F>
  static void with_and_without_clusters(const F& f) {
    for (const char* const clusters : {"0", "16"}) {
      SCOPED_TRACE(clusters);
      setenv("CONVOY_CLUSTERS", clusters, 1);
      f();
    }
  }
};

// Many blocks of one tile, many tiles with several blocks each, and more tiles than there are tickets.
constexpr std::int64_t kBlockShapes[][2] = {{9000, 4}, {700, 600}, {20, 32 * (CudaStream::kTickets + 3)}};

TEST_F(CudaLastBlock, LeavesTheTicketsZero) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    expect_tickets_are_zero(gpu);
    for (const auto& [rows, channels] : kBlockShapes) {
      Norm<float> norm(rows, channels);
      forward(gpu, norm, kRelu);
      expect_tickets_are_zero(gpu);
      backward(gpu, norm, kRelu, GradMode::overwrite);
      expect_tickets_are_zero(gpu);
      forward_in_shards(gpu, norm, kRelu, {rows / 2, rows});
      expect_tickets_are_zero(gpu);
      backward_in_shards(gpu, norm, kRelu, GradMode::overwrite, {rows / 2, rows});
      expect_tickets_are_zero(gpu);
      const DeviceArray<float> dy(gpu, norm.dy), x(gpu, norm.x), weight(gpu, norm.gamma),
          bias(gpu, norm.beta), means(gpu, Array<float>({rows, 1, 2}, 0.25F)),
          inverse_std(gpu, Array<float>({rows, 1}, 2));
      kernels::group_norm_backward(block_stream(gpu), dy.view(), x.view(), weight.view(), means.view(),
                                   inverse_std.view(), {}, weight.grad(), bias.grad());
      expect_tickets_are_zero(gpu);
    }
  });
}

// On a GPU this also shows a missing fence, with some luck.
TEST_F(CudaLastBlock, RepeatsBitsInManyLaunches) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const int launches = testing::gpus_are_emulated() ? 5 : 2000;
  for (const auto& [rows, channels] : {std::pair{9000, 4}, std::pair{700, 600}}) {
    const Norm<float> norm(rows, channels), expected = computed(gpu, norm);
    const Step step(gpu, norm);
    for (int launch = 0; launch < launches; ++launch) {
      step.enqueue();
      if (launch % 50 == 0 || launch + 1 == launches) step.expect_equals(expected);
    }
  }
}

TEST_F(CudaLastBlock, StreamsHaveTheirOwnTickets) {
  const DeviceContext a = DeviceContext::create_cuda(0), b = DeviceContext::create_cuda(0);
  const std::ptrdiff_t distance = block_stream(a).tickets() - block_stream(b).tickets();
  EXPECT_GE(std::abs(distance), CudaStream::kTickets);
  for_each_order([&] {
    const Norm<float> norm(9000, 4), expected = computed(a, norm);
    const Step on_a(a, norm), on_b(b, norm);
    const int launches = testing::gpus_are_emulated() ? 3 : 20;
    for (int launch = 0; launch < launches; ++launch) {
      on_a.enqueue();
      on_b.enqueue();
    }
    on_a.expect_equals(expected);
    on_b.expect_equals(expected);
  });
}

// The stream has run nothing before the capture, and runs the same kernels between the replays. So does its side stream.
TEST_F(CudaLastBlock, ReplaysInAGraph) {
  for_each_order([] {
    with_and_without_clusters([] {
      const Norm<float> norm(9000, 4), expected = computed(DeviceContext::create_cuda(0), norm);
      const DeviceContext gpu = DeviceContext::create_cuda(0);
      const Step captured(gpu, norm), aside(gpu, norm), eager(gpu, norm);
      gpu.enqueue_on_side_stream([](const Stream&) {});  // creates the stream
      gpu.join_side_stream();
      CudaGraph graph(gpu, [&] {
        gpu.enqueue_on_side_stream(
            [&](const Stream& s) { aside.enqueue_on(std::get<std::reference_wrapper<CudaStream>>(s)); });
        captured.enqueue();
        gpu.join_side_stream();
      });
      for (int replay = 0; replay < 3; ++replay) {
        graph.replay();
        eager.enqueue();
        captured.expect_equals(expected);
        aside.expect_equals(expected);
        eager.expect_equals(expected);
      }
      expect_tickets_are_zero(gpu);
    });
  });
}

}  // namespace
}  // namespace convoy
