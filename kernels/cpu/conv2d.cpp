// kernels/conv2d.h on the CPU: chooses the algorithm of each convolution, and calls oneDNN.
//
// f32 uses Winograd's algorithm where it pays, otherwise oneDNN. f64 uses the reference loops. bf16 uses the
// fastest of Winograd in f32, oneDNN in bf16, and oneDNN on f32 copies. Images are NHWC in memory. oneDNN
// chooses the layout of the filter, and each call reorders the OHWI filter into it: the filter changes at
// every training step anyway and is small compared with the images.
#include "convoy/kernels/conv2d.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/onednn.h"
#include "convoy/kernels/cpu/primitives/float_copies.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/cpu/winograd/conv2d.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/parallel.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {
namespace {

using dnnl::memory;

enum class Direction { forward, backward_data, backward_filter };

/// The cache key of a oneDNN primitive.
struct ConvKey {
  Direction direction;
  DType dtype;  // f32 or bf16, the same for all arrays
  bool bias;
  ConvSizes sizes;
  friend auto operator<=>(const ConvKey&, const ConvKey&) = default;
};

/// The arrays of one call. In the backward directions, x, filter or y point to the respective gradient.
struct ConvData {
  void* x;
  void* filter;
  void* bias;
  void* y;
};

/// A oneDNN convolution primitive, the reorder of its filter, and their memory objects.
class Convolution {
 public:
  Convolution(const dnnl::engine& engine, const ConvKey& key);
  void run(dnnl::stream& stream, Workspace& scratchpad, Workspace& packed, const ConvData& data);

 private:
  dnnl::primitive convolution_;
  dnnl::primitive reorder_;  // empty if oneDNN accepts the OHWI layout
  bool filter_is_output_;
  memory x_, filter_, packed_filter_, bias_, y_;  // own no data: each call sets the handles
  memory scratchpad_, reorder_scratchpad_;
  std::unordered_map<int, memory> convolution_arguments_, reorder_arguments_;
};

Convolution::Convolution(const dnnl::engine& engine, const ConvKey& key)
    : filter_is_output_(key.direction == Direction::backward_filter) {
  const ConvSizes& s = key.sizes;
  const auto type = key.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto array = [type](const memory::dims& dims, memory::format_tag tag) {
    return memory::desc(dims, type, tag);
  };
  // oneDNN's logical order, independent of the layout. Groups are an axis of their own.
  const bool is_grouped = s.groups > 1;
  const memory::dims filter_dims =
      is_grouped ? memory::dims{s.groups, s.group_outputs(), s.group_inputs(), s.kh, s.kw}
                 : memory::dims{s.o, s.i, s.kh, s.kw};
  onednn::ConvolutionArguments arguments{
      .x = array({s.n, s.i, s.h, s.w}, memory::format_tag::nhwc),
      .filter = array(filter_dims, memory::format_tag::any),
      .bias = key.bias ? array({s.o}, memory::format_tag::x) : memory::desc(),
      .y = array({s.n, s.o, s.oh, s.ow}, memory::format_tag::nhwc),
      .stride = {s.stride, s.stride},
      .padding = {s.padding, s.padding},
  };
  arguments.attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  arguments.attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // f32 never computes in lower precision

  const auto empty = [&](const memory::desc& desc) { return memory(desc, engine, DNNL_MEMORY_NONE); };
  x_ = empty(arguments.x);
  y_ = empty(arguments.y);
  const auto create = [&](auto primitive, const auto& description, const memory::desc& packed) {
    convolution_ = decltype(primitive)(description);
    packed_filter_ = empty(packed);
    scratchpad_ = empty(description.scratchpad_desc());
  };
  switch (key.direction) {
    case Direction::forward: {
      const auto description = onednn::forward(engine, arguments);
      create(dnnl::convolution_forward(), description, description.weights_desc());
      convolution_arguments_ = {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, packed_filter_}, {DNNL_ARG_DST, y_}};
      if (key.bias) convolution_arguments_.emplace(DNNL_ARG_BIAS, bias_ = empty(arguments.bias));
      break;
    }
    case Direction::backward_data: {
      const auto description = onednn::backward_data(engine, arguments);
      create(dnnl::convolution_backward_data(), description, description.weights_desc());
      convolution_arguments_ = {
          {DNNL_ARG_DIFF_SRC, x_}, {DNNL_ARG_WEIGHTS, packed_filter_}, {DNNL_ARG_DIFF_DST, y_}};
      break;
    }
    case Direction::backward_filter: {
      const auto description = onednn::backward_filter(engine, arguments);
      create(dnnl::convolution_backward_weights(), description, description.diff_weights_desc());
      convolution_arguments_ = {
          {DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_WEIGHTS, packed_filter_}, {DNNL_ARG_DIFF_DST, y_}};
      break;
    }
  }
  convolution_arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);

  const memory::desc held =
      array(filter_dims, is_grouped ? memory::format_tag::gohwi : memory::format_tag::ohwi);
  if (packed_filter_.get_desc() == held) {
    filter_ = packed_filter_;
    return;
  }
  filter_ = empty(held);
  const memory& from = filter_is_output_ ? packed_filter_ : filter_;
  const memory& to = filter_is_output_ ? filter_ : packed_filter_;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc description(from, to, attributes);
  reorder_ = dnnl::reorder(description);
  reorder_scratchpad_ = empty(description.scratchpad_desc());
  reorder_arguments_ = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, reorder_scratchpad_}};
}

void Convolution::run(dnnl::stream& stream, Workspace& scratchpad, Workspace& packed, const ConvData& data) {
  x_.set_data_handle(data.x);
  y_.set_data_handle(data.y);
  if (bias_) bias_.set_data_handle(data.bias);
  filter_.set_data_handle(data.filter);
  std::size_t scratchpad_bytes = scratchpad_.get_desc().get_size();
  if (reorder_) {
    packed_filter_.set_data_handle(packed.get(packed_filter_.get_desc().get_size()));
    // The two primitives run one after the other, so they share one scratchpad.
    scratchpad_bytes = std::max(scratchpad_bytes, reorder_scratchpad_.get_desc().get_size());
    reorder_scratchpad_.set_data_handle(scratchpad.get(scratchpad_bytes));
  }
  scratchpad_.set_data_handle(scratchpad.get(scratchpad_bytes));
  if (reorder_ && !filter_is_output_) reorder_.execute(stream, reorder_arguments_);
  convolution_.execute(stream, convolution_arguments_);
  if (reorder_ && filter_is_output_) reorder_.execute(stream, reorder_arguments_);
  stream.wait();
}

/// The oneDNN convolutions of one stream, created on first use.
class ConvCache {
 public:
  explicit ConvCache(const CpuStream&) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void run(CpuStream& stream, const ConvKey& key, const ConvData& data) {
    Workspace scratchpad(stream), packed_filter(stream);
    try {
      auto found = convolutions_.find(key);
      if (found == convolutions_.end()) found = convolutions_.emplace(key, Convolution(engine_, key)).first;
      found->second.run(stream_, scratchpad, packed_filter, data);
    } catch (const dnnl::error& error) {
      const ConvSizes& s = key.sizes;
      fail<DeviceError>(
          "conv2d of x [{}, {}, {}, {}] with filter [{}, {}, {}, {}] failed in oneDNN: {} (status {})", s.n,
          s.h, s.w, s.i, s.o, s.kh, s.kw, s.group_inputs(), error.what(), static_cast<int>(error.status));
    }
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<ConvKey, Convolution> convolutions_;
};

// oneDNN takes inputs and outputs as void*.
void* unconst(ConstView view) { return const_cast<void*>(view.data); }

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

enum class ConvAlgorithm { reference, winograd, onednn, f32_copies };

/// Returns the algorithm of all three directions of a convolution. For bf16: with dot-product instructions
/// for bf16, oneDNN is as fast as Winograd in f32, which rounds less. With tile instructions (AMX) oneDNN is
/// faster. Without dot-product instructions oneDNN is faster on f32 copies. The choice depends on the sizes,
/// the processor and the environment only and never on a measurement, so results are reproducible.
ConvAlgorithm choose_algorithm(CpuStream& stream, DType dtype, const ConvSizes& s) {
  if (dtype == DType::f64) return ConvAlgorithm::reference;
  dispatch(kCpuTypes, dtype, [](auto) {});  // throws UsageError for any other type
  const bool half = is_half(dtype);
  // oneDNN rejects or ignores empty arrays. The reference loops treat them as empty sums.
  const bool empty = s.n * s.h * s.w * s.i == 0 || s.o * s.kh * s.kw == 0;
  if (empty) return half ? ConvAlgorithm::f32_copies : ConvAlgorithm::reference;
  const Switches& switches = stream.local<Switches>();
  const bool library_is_faster = half && switches.onednn_bf16 && switches.tiles;
  if (switches.winograd && winograd::pays(s) && !library_is_faster) return ConvAlgorithm::winograd;
  return half && !switches.onednn_bf16 ? ConvAlgorithm::f32_copies : ConvAlgorithm::onednn;
}

// Calls convolve(first, second, third, result) with f32 copies of the arguments, then rounds the result to
// `out`. `third` may be null.
template <class Convolve>
void with_f32_copies(CpuStream& stream, ConstView first, ConstView second, ConstView third, GradView out,
                     const Convolve& convolve) {
  FloatCopies copies(stream);
  const View result = copies.buffer(0, out.shape);
  convolve(copies.widen(1, first), copies.widen(2, second), copies.widen(3, third), result);
  round_into(stream, result, out);
}

// Calls make(destination), which writes a gradient. In GradMode::accumulate the destination is temporary
// memory, which is then added to `gradient`.
template <class Make>
void make_gradient(CpuStream& stream, GradView gradient, const Make& make) {
  if (gradient.mode == GradMode::overwrite) return make(gradient.data);
  Workspace memory(stream);
  const View temporary{memory.get(gradient.bytes()), gradient.shape, gradient.dtype};
  make(temporary.data);
  scale(stream, temporary, 1, gradient);
}

}  // namespace

void conv2d_forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (y.numel() == 0) return;
  const ConvSizes sizes(x.shape, filter.shape, y.shape, options);
  switch (choose_algorithm(stream, y.dtype, sizes)) {
    case ConvAlgorithm::reference: return conv2d_forward_reference(stream, x, filter, bias, y, options);
    case ConvAlgorithm::winograd: return winograd::forward(stream, x, filter, bias, y, options);
    case ConvAlgorithm::f32_copies:
      return with_f32_copies(stream, x, filter, bias, GradView(y),
                             [&](ConstView wide_x, ConstView wide_filter, ConstView wide_bias, View wide_y) {
                               conv2d_forward(stream, wide_x, wide_filter, wide_bias, wide_y, options);
                             });
    case ConvAlgorithm::onednn: break;
  }
  set_library_threads(stream);
  stream.local<ConvCache>().run(stream, {Direction::forward, y.dtype, bias.data != nullptr, sizes},
                                {unconst(x), unconst(filter), unconst(bias), y.data});
  // A separate pass: oneDNN's fused ReLU turns NaN into 0, which would hide a diverged training.
  if (options.relu) relu_forward(stream, y, y);
}

void conv2d_backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  const ConvSizes sizes(dx.shape, filter.shape, dy.shape, options);
  switch (choose_algorithm(stream, dx.dtype, sizes)) {
    case ConvAlgorithm::reference: return conv2d_backward_data_reference(stream, dy, filter, dx, options);
    case ConvAlgorithm::winograd: return winograd::backward_data(stream, dy, filter, dx, options);
    case ConvAlgorithm::f32_copies:
      return with_f32_copies(stream, dy, filter, {}, dx,
                             [&](ConstView wide_dy, ConstView wide_filter, ConstView, View wide_dx) {
                               conv2d_backward_data(stream, wide_dy, wide_filter, GradView(wide_dx), options);
                             });
    case ConvAlgorithm::onednn: break;
  }
  set_library_threads(stream);
  make_gradient(stream, dx, [&](void* destination) {
    stream.local<ConvCache>().run(stream, {Direction::backward_data, dx.dtype, false, sizes},
                                  {destination, unconst(filter), nullptr, unconst(dy)});
  });
}

void conv2d_backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  const ConvSizes sizes(x.shape, dfilter.shape, dy.shape, options);
  switch (choose_algorithm(stream, dfilter.dtype, sizes)) {
    case ConvAlgorithm::reference: return conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
    case ConvAlgorithm::winograd: return winograd::backward_filter(stream, dy, x, dfilter, options);
    case ConvAlgorithm::f32_copies:
      return with_f32_copies(
          stream, dy, x, {}, dfilter, [&](ConstView wide_dy, ConstView wide_x, ConstView, View wide_dfilter) {
            conv2d_backward_filter(stream, wide_dy, wide_x, GradView(wide_dfilter), options);
          });
    case ConvAlgorithm::onednn: break;
  }
  set_library_threads(stream);
  make_gradient(stream, dfilter, [&](void* destination) {
    stream.local<ConvCache>().run(stream, {Direction::backward_filter, dfilter.dtype, false, sizes},
                                  {unconst(x), destination, nullptr, unconst(dy)});
  });
}

}  // namespace convoy::kernels
