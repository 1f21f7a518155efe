// f32 convolutions by Winograd's algorithm where that pays, else by oneDNN; f64 by the plain loops. Images
// are NHWC in memory; the layout of the filter is the library's own choice, into which ours (OHWI) is packed
// at each call: it changes at each training step anyway, and is small beside the images.
#include "kernels/conv2d.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "kernels/conv2d_geometry.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/winograd_conv2d.h"
#include "kernels/cpu/workspace.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

using dnnl::memory;

enum class Direction { forward, backward_data, backward_filter };

/// All that a created primitive depends on.
struct ConvKey {
  Direction direction;
  bool bias;
  ConvSizes sizes;
  friend auto operator<=>(const ConvKey&, const ConvKey&) = default;
};

/// One call's arrays; in backward, x, filter or y stand for their gradients.
struct ConvData {
  void* x;
  void* filter;
  void* bias;
  void* y;
};

/// A created convolution, the reorder of its filter, and their memory objects.
class Convolution {
 public:
  Convolution(const dnnl::engine& engine, const ConvKey& key);
  void run(dnnl::stream& stream, Workspace& scratchpad, Workspace& packed, const ConvData& data);

 private:
  dnnl::primitive convolution_;
  dnnl::primitive reorder_;  // empty where the library takes the filter as we hold it
  bool filter_is_output_;
  memory x_, filter_, packed_filter_, bias_, y_;  // without data of their own: each call sets it
  memory scratchpad_, reorder_scratchpad_;
  std::unordered_map<int, memory> convolution_arguments_, reorder_arguments_;
};

Convolution::Convolution(const dnnl::engine& engine, const ConvKey& key)
    : filter_is_output_(key.direction == Direction::backward_filter) {
  const ConvSizes& s = key.sizes;
  const auto f32 = [](const memory::dims& dims, memory::format_tag tag) {
    return memory::desc(dims, memory::data_type::f32, tag);
  };
  const memory::dims filter_dims{s.o, s.i, s.kh,
                                 s.kw};  // oneDNN's order of sizes, whatever the order in memory
  onednn::ConvolutionArguments arguments{
      .x = f32({s.n, s.i, s.h, s.w}, memory::format_tag::nhwc),
      .filter = f32(filter_dims, memory::format_tag::any),
      .bias = key.bias ? f32({s.o}, memory::format_tag::x) : memory::desc(),
      .y = f32({s.n, s.o, s.oh, s.ow}, memory::format_tag::nhwc),
      .stride = {s.stride, s.stride},
      .padding = {s.padding, s.padding},
  };
  arguments.attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  arguments.attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // f32 never silently computes in less

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

  const memory::desc held = f32(filter_dims, memory::format_tag::ohwi);
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
    // One after the other, the two may share it.
    scratchpad_bytes = std::max(scratchpad_bytes, reorder_scratchpad_.get_desc().get_size());
    reorder_scratchpad_.set_data_handle(scratchpad.get(scratchpad_bytes));
  }
  scratchpad_.set_data_handle(scratchpad.get(scratchpad_bytes));
  if (reorder_ && !filter_is_output_) reorder_.execute(stream, reorder_arguments_);
  convolution_.execute(stream, convolution_arguments_);
  if (reorder_ && filter_is_output_) reorder_.execute(stream, reorder_arguments_);
  stream.wait();
}

/// A stream's convolutions, created on first use.
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
      fail<DeviceError>("conv2d of [{}, {}, {}, {}] with filters [{}, {}, {}, {}]: oneDNN: {} (status {})",
                        s.n, s.h, s.w, s.i, s.o, s.kh, s.kw, s.i, error.what(),
                        static_cast<int>(error.status));
    }
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<ConvKey, Convolution> convolutions_;
};

// oneDNN's interface does not tell inputs from outputs.
void* unconst(ConstView view) { return const_cast<void*>(view.data); }

// The library refuses or ignores what is empty; the loops give it its natural meaning (sums of no terms).
bool by_loops(ConstView output, ConstView x, ConstView filter) {
  return output.dtype == DType::f64 || x.numel() == 0 || filter.numel() == 0;
}

struct WinogradSwitch {
  explicit WinogradSwitch(const CpuStream&) {
    const char* const found = std::getenv("CONVOY_WINOGRAD");
    const std::string_view wanted = found != nullptr ? found : "on";
    check(wanted == "on" || wanted == "off", "CONVOY_WINOGRAD: found '{}', expected on or off", wanted);
    on = wanted == "on";
  }
  bool on;
};

bool by_winograd(CpuStream& stream, const ConvSizes& sizes) {
  return stream.local<WinogradSwitch>().on && winograd::pays(sizes);
}

// Calls make(where) with the place where a gradient is to be written, and adds it to its destination if so
// wanted.
template <class Make>
void make_gradient(CpuStream& stream, GradView gradient, const Make& make) {
  if (gradient.mode == Mode::write) return make(gradient.data);
  Workspace memory(stream);
  const View fresh{memory.get(gradient.bytes()), gradient.shape, gradient.dtype};
  make(fresh.data);
  scale(stream, fresh, 1, gradient);
}

}  // namespace

void conv2d_forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (by_loops(y, x, filter)) return conv2d_forward_reference(stream, x, filter, bias, y, options);
  if (y.numel() == 0) return;
  const ConvSizes sizes(x.shape, filter.shape, y.shape, options);
  if (by_winograd(stream, sizes)) return winograd::forward(stream, x, filter, bias, y, options);
  set_library_threads(stream);
  stream.local<ConvCache>().run(stream, {Direction::forward, bias.data != nullptr, sizes},
                                {unconst(x), unconst(filter), unconst(bias), y.data});
  // A pass of its own: the library's fused one makes NaN 0, and a diverged training would go on unnoticed.
  if (options.relu) relu_forward(stream, y, y);
}

void conv2d_backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  if (by_loops(dx, dx, filter)) return conv2d_backward_data_reference(stream, dy, filter, dx, options);
  const ConvSizes sizes(dx.shape, filter.shape, dy.shape, options);
  if (by_winograd(stream, sizes)) return winograd::backward_data(stream, dy, filter, dx, options);
  set_library_threads(stream);
  make_gradient(stream, dx, [&](void* where) {
    stream.local<ConvCache>().run(stream, {Direction::backward_data, false, sizes},
                                  {where, unconst(filter), nullptr, unconst(dy)});
  });
}

void conv2d_backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  if (by_loops(dfilter, x, dfilter)) return conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
  const ConvSizes sizes(x.shape, dfilter.shape, dy.shape, options);
  if (by_winograd(stream, sizes)) return winograd::backward_filter(stream, dy, x, dfilter, options);
  set_library_threads(stream);
  make_gradient(stream, dfilter, [&](void* where) {
    stream.local<ConvCache>().run(stream, {Direction::backward_filter, false, sizes},
                                  {unconst(x), where, nullptr, unconst(dy)});
  });
}

}  // namespace convoy
