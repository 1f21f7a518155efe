// hopper_convolution_bench [--by hopper|cudnn] [--direction forward|data|filter] [--batch N] [--count]
//
// Times the 3x3 convolutions of ResNet-18 for images of 32 x 32 pixels in bf16, with stride 1 and those channels that
// conv2d_3x3.h supports. The last line, "step  N ms", is the time of all of them in a training step. Without --by, both
// kinds run in turn, and the last line is of the own ones. --count, on emulated GPUs: counts what the own ones access, and
// predicts their times on an H100 (tests/cuda_emulator/counted).
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cuda/primitives/timing.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/device_context.h"
#include "tests/cuda_emulator/convolution/conv2d_3x3.h"
#include "tests/cuda_emulator/counted/counted_launch.h"
#include "tests/cuda_emulator/counted/gpu_model.h"

namespace convoy {
namespace {

namespace hopper = kernels::hopper;

struct Layer {
  std::int64_t side, channels;
  int count;  // in a ResNet-18, with stride 1
};
constexpr Layer kLayers[] = {{32, 64, 4}, {16, 128, 3}, {8, 256, 3}, {4, 512, 3}};
const std::vector<std::string> kDirections = {"forward", "data", "filter"};
constexpr Conv2dOptions k3x3{.padding = 1};

/// An array of a GPU with ones.
class Ones {
 public:
  Ones(const DeviceContext& gpu, CudaStream& stream, const Shape& shape, DType dtype)
      : gpu_(gpu), view_{nullptr, shape, dtype} {
    view_.data = gpu_.memory().allocate(view_.bytes());
    kernels::fill(stream, 1, view_);
  }
  ~Ones() { gpu_.memory().release(view_.data, view_.bytes()); }
  Ones(const Ones&) = delete;
  Ones& operator=(const Ones&) = delete;
  const View& view() const { return view_; }

 private:
  const DeviceContext& gpu_;
  View view_;
};

/// Prints what a call accesses. Returns the predicted time in milliseconds.
double count(const DeviceContext& gpu, const std::function<void()>& call) {
  const bench::GpuModel model = bench::h100_model();
  double seconds = 0;
  for (const bench::CountedLaunch& launch : bench::counted_launches([&] {
         call();
         gpu.synchronize();
       })) {
    const double predicted = bench::predicted_seconds(model, launch);
    seconds += predicted;
    fmt::print(
        "\n  {:24} {:6.1f} MB, {:5.2f} GFLOP, {:7.3f} million wavefronts, {:.2f} for each necessary one: {:6.1f} us",
        launch.name, 1e-6 * static_cast<double>(launch.bytes()), 1e-9 * static_cast<double>(launch.flops),
        1e-6 * static_cast<double>(launch.shared_wavefronts), launch.bank_conflicts(), 1e6 * predicted);
  }
  return 1e3 * seconds;
}

/// Prints the time of a layer's convolutions by each of `kinds`, or the predicted one if there are none. Returns the
/// first one in milliseconds.
double measure(const DeviceContext& gpu, const Layer& layer, const std::string& direction, std::int64_t batch,
               const std::vector<std::string>& kinds) {
  CudaStream& stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
  const Ones x(gpu, stream, {batch, layer.side, layer.side, layer.channels}, DType::bf16),
      y(gpu, stream, x.view().shape, DType::bf16),
      filter(gpu, stream, {layer.channels, 3, 3, layer.channels}, DType::bf16),
      gradient(gpu, stream, filter.view().shape, DType::f32),
      rounded(gpu, stream, filter.view().shape, DType::bf16),
      sums(gpu, stream, {2, layer.channels}, DType::f32);
  const std::map<std::string, std::function<void()>> calls = {
      {"hopper forward",
       [&] {
         hopper::conv2d_3x3(stream, hopper::Filters::forward, x.view(), filter.view(), y.view(), sums.view());
       }},
      {"hopper data",
       [&] { hopper::conv2d_3x3(stream, hopper::Filters::flipped, y.view(), filter.view(), x.view()); }},
      {"hopper filter",
       [&] { hopper::conv2d_3x3_filter(stream, y.view(), x.view(), GradView(gradient.view())); }},
      {"cudnn forward",
       [&] { kernels::conv2d_forward(stream, x.view(), filter.view(), {}, y.view(), k3x3); }},
      {"cudnn data",
       [&] { kernels::conv2d_backward_data(stream, y.view(), filter.view(), GradView(x.view()), k3x3); }},
      {"cudnn filter",
       [&] { kernels::conv2d_backward_filter(stream, y.view(), x.view(), GradView(rounded.view()), k3x3); }}};
  const double flops = 2.0 * static_cast<double>(x.view().shape.numel() * 9 * layer.channels);
  fmt::print("{:2}x{:<2} {:3} channels  {:8}", layer.side, layer.side, layer.channels, direction);
  std::vector<double> ms;
  if (kinds.empty()) ms.push_back(count(gpu, calls.at("hopper " + direction)));
  for (const std::string& kind : kinds) {
    const std::function<void()>& call = calls.at(kind + " " + direction);
    ms.push_back(kernels::cuda::measure_ms(stream, {[&call] {
                                             call();
                                             return true;
                                           }})
                     .front());
  }
  for (std::size_t i = 0; i < kinds.size(); ++i)
    fmt::print("  {} {:9.2f} us {:6.0f} TFLOP/s", kinds[i], 1e3 * ms[i], 1e-9 * flops / ms[i]);
  fmt::print("\n");
  return ms.front();
}

int run(int count, char** arguments) {
  std::vector<std::string> kinds = {"hopper", "cudnn"}, directions = kDirections;
  std::int64_t batch = 128;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    if (name == "--count" && i + 1 == count) {
      kinds.clear();
      bench::require_counting();
      bench::skip_libraries();
    } else if (name == "--by" && (value == "hopper" || value == "cudnn")) {
      kinds = {value};
    } else if (name == "--direction" && std::ranges::find(kDirections, value) != kDirections.end()) {
      directions = {value};
    } else {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), batch);
      check(
          name == "--batch" && error == std::errc() && end == value.data() + value.size() && batch > 0,
          "{} {}: expected --by hopper|cudnn, --direction forward|data|filter, --batch N or, at the end, --count",
          name, value);
    }
  }
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  double step = 0;
  for (const Layer& layer : kLayers) {
    const Shape x{batch, layer.side, layer.side, layer.channels},
        filter{layer.channels, 3, 3, layer.channels};
    if (!hopper::supports_conv2d_3x3(DType::bf16, {x, filter, x, k3x3})) continue;
    for (const std::string& direction : directions)
      step += layer.count * measure(gpu, layer, direction, batch, kinds);
  }
  fmt::print("step  {:.4f} ms\n", step);
  return 0;
}

}  // namespace
}  // namespace convoy

int main(int count, char** arguments) {
  try {
    return convoy::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hopper_convolution_bench: %s\n", error.what());
    return 1;
  }
}
