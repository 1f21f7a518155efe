// kernels/conv2d.h on the CPU: chooses the algorithm of each convolution, and calls oneDNN.
//
// f32 uses Winograd's algorithm or a matrix product of windows (few_channels/) where they pay, otherwise oneDNN.
// f64 uses the reference loops. bf16 uses the
// fastest of Winograd in f32, oneDNN in bf16, and oneDNN on f32 copies. Images are NHWC in memory. oneDNN
// chooses the layout of the filter, and each call reorders the OHWI filter into it: the filter changes at
// every training step anyway and is small compared with the images.
#include "convoy/kernels/conv2d.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/few_channels/conv2d.h"
#include "convoy/kernels/cpu/onednn/convolution.h"
#include "convoy/kernels/cpu/onednn/versions.h"
#include "convoy/kernels/cpu/primitives/float_copies.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/cpu/winograd/conv2d.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {
namespace {

/// The algorithm switches of the environment (CONVOY_WINOGRAD, CONVOY_ONEDNN_BF16) and the processor's
/// features.
struct Switches {
  explicit Switches(const CpuStream&) {
    const std::string_view algorithm = environment("CONVOY_WINOGRAD", "on");
    check(algorithm == "on" || algorithm == "off", "CONVOY_WINOGRAD: found '{}', expected on or off",
          algorithm);
    winograd = algorithm == "on";
    const std::string_view library = environment("CONVOY_ONEDNN_BF16", "auto");
    check(library == "on" || library == "off" || library == "auto",
          "CONVOY_ONEDNN_BF16: found '{}', expected on, off or auto", library);
    onednn_bf16 = library == "on" || (library == "auto" && onednn::has_bf16_gemm());
  }

  bool winograd;
  bool onednn_bf16;  // bf16 convolutions without Winograd run in oneDNN's bf16 instead of on f32 copies
  bool tiles = onednn::has_bf16_tiles();

 private:
  static std::string_view environment(const char* name, const char* fallback) {
    const char* const found = std::getenv(name);
    return found != nullptr ? found : fallback;
  }
};

enum class ConvAlgorithm { reference, winograd, few_channels, onednn, f32_copies };

/// Returns the algorithm of all three directions of a convolution. For bf16: with dot-product instructions
/// for bf16, oneDNN is as fast as Winograd in f32, which rounds less. With tile instructions (AMX) oneDNN is
/// faster. Without dot-product instructions oneDNN is faster on f32 copies. The choice depends on the sizes,
/// the processor and the environment only and never on a measurement, so results are reproducible.
/// `has_library` is false if oneDNN has no primitive of this convolution.
ConvAlgorithm choose_algorithm(CpuStream& stream, DType dtype, const ConvSizes& s, bool has_library = true) {
  if (dtype == DType::f64) return ConvAlgorithm::reference;
  dispatch(kCpuTypes, dtype, [](auto) {});  // throws UsageError for any other type
  const bool half = is_half(dtype);
  // oneDNN rejects or ignores empty arrays. The reference loops treat them as empty sums.
  const bool empty = s.n * s.h * s.w * s.i == 0 || s.o * s.kh * s.kw == 0;
  if (empty) return half ? ConvAlgorithm::f32_copies : ConvAlgorithm::reference;
  const Switches& switches = stream.local<Switches>();
  const bool bf16_in_library = half && switches.onednn_bf16 && has_library;
  const bool library_is_faster = bf16_in_library && switches.tiles;
  if (switches.winograd && winograd::pays(s) && !library_is_faster) return ConvAlgorithm::winograd;
  if (half) return bf16_in_library ? ConvAlgorithm::onednn : ConvAlgorithm::f32_copies;
  if (few_channels::pays(s)) return ConvAlgorithm::few_channels;
  return has_library ? ConvAlgorithm::onednn : ConvAlgorithm::reference;
}

// Returns make(destination), which writes a gradient or returns why it cannot. In GradMode::accumulate the
// destination is temporary memory, which is then added to `gradient`.
template <class Make>
std::string make_gradient(CpuStream& stream, GradView gradient, const Make& make) {
  Workspace memory(stream);
  View to{.data = gradient.data, .shape = gradient.shape, .dtype = gradient.dtype};
  if (gradient.mode == GradMode::overwrite) return make(to);
  to.data = memory.get(gradient.bytes());
  std::string refusal = make(to);
  if (refusal.empty()) scale(stream, to, 1, gradient);
  return refusal;
}

/// The functions that compute one direction: by each algorithm of this project, and by any of them.
template <class Function>
struct ConvDirection {
  const char* name;
  Function *reference, *winograd, *few_channels, *any;
};

/// Returns what a user reads if oneDNN has no primitive of a convolution and another algorithm replaces it.
std::string refusal_text(const char* direction, DType dtype, const ConvSizes& s, const std::string& refusal,
                         ConvAlgorithm instead) {
  return fmt::format("{} has no {} of {} x [{}, {}, {}, {}] with filter [{}, {}, {}, {}]: {}; {}",
                     onednn_version_text(), direction, to_string(dtype), s.n, s.h, s.w, s.i, s.o, s.kh, s.kw,
                     s.group_inputs(), refusal,
                     instead == ConvAlgorithm::winograd     ? "Winograd's algorithm in f32 replaces it"
                     : instead == ConvAlgorithm::f32_copies ? "a convolution of f32 copies replaces it"
                                                            : "plain loops compute it, which are slow");
}

/// Computes `out` from the arguments `in` by the chosen algorithm. library() does so by oneDNN, or returns why
/// it cannot: then the next algorithm does, with one warning per direction and type.
template <class Function, class Library, class Out, class... In>
void convolve(CpuStream& stream, const ConvDirection<Function>& by, const ConvSizes& sizes,
              Conv2dOptions options, const Library& library, const Out& out, const In&... in) {
  ConvAlgorithm algorithm = choose_algorithm(stream, out.dtype, sizes);
  if (algorithm == ConvAlgorithm::onednn) {
    const std::string refusal = library();
    if (refusal.empty()) return;
    algorithm = choose_algorithm(stream, out.dtype, sizes, /*has_library=*/false);
    stream.warn_once(fmt::format("{} {}", by.name, to_string(out.dtype)),
                     refusal_text(by.name, out.dtype, sizes, refusal, algorithm));
  }
  switch (algorithm) {
    case ConvAlgorithm::reference: return by.reference(stream, in..., out, options);
    case ConvAlgorithm::winograd: return by.winograd(stream, in..., out, options);
    case ConvAlgorithm::few_channels: return by.few_channels(stream, in..., out, options);
    case ConvAlgorithm::onednn: return;  // done above
    case ConvAlgorithm::f32_copies: {
      FloatCopies copies(stream);
      const View result = copies.buffer(out.shape);
      by.any(stream, copies.widen(in)..., Out(result), options);
      return round_into(stream, result, GradView(out));
    }
  }
}

}  // namespace

void conv2d_forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (y.numel() == 0) return;
  const ConvSizes sizes(x.shape, filter.shape, y.shape, options);
  convolve(
      stream,
      ConvDirection<decltype(winograd::forward)>{"convolution", conv2d_forward_reference, winograd::forward,
                                                 few_channels::forward, conv2d_forward},
      sizes, options,
      [&] {
        std::string refusal = onednn::convolution_forward(stream, sizes, x, filter, bias, y);
        // A separate pass: oneDNN's fused ReLU turns NaN into 0, which would hide a diverged training.
        if (refusal.empty() && options.relu) unary_forward(stream, UnaryOp::relu, y, y);
        return refusal;
      },
      y, x, filter, bias);
}

void conv2d_backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  const ConvSizes sizes(dx.shape, filter.shape, dy.shape, options);
  convolve(
      stream,
      ConvDirection<decltype(winograd::backward_data)>{
          "gradient of the images", conv2d_backward_data_reference, winograd::backward_data,
          few_channels::backward_data, conv2d_backward_data},
      sizes, options,
      [&] {
        return make_gradient(stream, dx, [&](View to) {
          return onednn::convolution_backward_data(stream, sizes, dy, filter, to);
        });
      },
      dx, dy, filter);
}

void conv2d_backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  const ConvSizes sizes(x.shape, dfilter.shape, dy.shape, options);
  convolve(
      stream,
      ConvDirection<decltype(winograd::backward_filter)>{
          "gradient of the filter", conv2d_backward_filter_reference, winograd::backward_filter,
          few_channels::backward_filter, conv2d_backward_filter},
      sizes, options,
      [&] {
        return make_gradient(stream, dfilter, [&](View to) {
          return onednn::convolution_backward_filter(stream, sizes, dy, x, to);
        });
      },
      dfilter, dy, x);
}

}  // namespace convoy::kernels
