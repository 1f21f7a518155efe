#include "convoy/kernels/cpu/onednn/convolution.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/onednn/versions.h"
#include "convoy/kernels/cpu/primitives/library_threads.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/signal_block.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels::onednn {
namespace {

using dnnl::memory;

enum class Direction { forward, backward_data, backward_filter };

/// The cache key of a primitive.
struct ConvKey {
  Direction direction;
  DType dtype;  // f32 or bf16, of all arrays but the filter's gradient, which is f32
  bool bias;
  int library_threads;
  ConvSizes sizes;
  friend auto operator<=>(const ConvKey&, const ConvKey&) = default;
};

/// The arrays of one call. In the backward directions, x, filter or y point to the respective gradient.
struct ConvData {
  void* x;
  void* filter;  // in the primitive's layout
  void* bias;
  void* y;
};

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

/// Returns the layout of a filter [O, H, W, I] in memory. oneDNN's logical order is independent of it: OIHW,
/// with an axis in front for groups.
memory::desc filter_layout(const ConvSizes& s, memory::data_type type, bool any) {
  const bool is_grouped = s.groups > 1;
  const memory::dims dims = is_grouped
                                ? memory::dims{s.groups, s.group_outputs(), s.group_inputs(), s.kh, s.kw}
                                : memory::dims{s.o, s.i, s.kh, s.kw};
  const auto held = is_grouped ? memory::format_tag::gohwi : memory::format_tag::ohwi;
  return {dims, type, any ? memory::format_tag::any : held};
}

/// A convolution primitive and, for each thread that may run it, a stream and the memory objects of its
/// arguments. The memory objects own no data: each call sets their addresses.
class Convolution {
 public:
  Convolution(const dnnl::engine& engine, const ConvKey& key, int threads);

  /// Returns the primitive's layout of the filter.
  const memory::desc& filter_layout() const { return filter_; }
  /// Returns the temporary memory of a call in bytes.
  std::size_t scratchpad_bytes() const { return scratchpad_.get_size(); }
  /// Computes the convolution. Several threads may call it at once, each with an index of its own.
  void run(int thread, const ConvData& data, void* scratchpad);

 private:
  struct Call {
    dnnl::stream stream;
    memory x, filter, bias, y, scratchpad;
    std::unordered_map<int, memory> arguments;
  };
  dnnl::primitive primitive_;
  memory::desc filter_, scratchpad_;
  std::vector<Call> calls_;
};

Convolution::Convolution(const dnnl::engine& engine, const ConvKey& key, int threads) {
  const ConvSizes& s = key.sizes;
  const memory::data_type type = type_of(key.dtype);
  const bool filter_is_output = key.direction == Direction::backward_filter;
  ConvolutionArguments arguments{
      .x = {{s.n, s.i, s.h, s.w}, type, memory::format_tag::nhwc},
      .filter = onednn::filter_layout(s, filter_is_output ? memory::data_type::f32 : type, /*any=*/true),
      .bias = key.bias ? memory::desc({s.o}, type, memory::format_tag::x) : memory::desc(),
      .y = {{s.n, s.o, s.oh, s.ow}, type, memory::format_tag::nhwc},
      .forward_filter = onednn::filter_layout(s, type, /*any=*/true),
      .stride = {s.stride.height, s.stride.width},
      .dilation = {s.dilation.height - 1, s.dilation.width - 1},
      .padding = {s.padding.height, s.padding.width},
      .attributes = {},
  };
  arguments.attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  arguments.attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // f32 never computes in lower precision
  set_library_threads(key.library_threads);                         // the primitive is made for this number
  int x_name = DNNL_ARG_SRC, filter_name = DNNL_ARG_WEIGHTS, y_name = DNNL_ARG_DST;
  const auto create = [&](auto primitive, const auto& description, const memory::desc& filter) {
    primitive_ = decltype(primitive)(description);
    filter_ = filter;
    scratchpad_ = description.scratchpad_desc();
  };
  switch (key.direction) {
    case Direction::forward: {
      const auto description = forward(engine, arguments);
      create(dnnl::convolution_forward(), description, description.weights_desc());
      break;
    }
    case Direction::backward_data: {
      const auto description = backward<dnnl::convolution_backward_data>(engine, arguments);
      create(dnnl::convolution_backward_data(), description, description.weights_desc());
      x_name = DNNL_ARG_DIFF_SRC;
      y_name = DNNL_ARG_DIFF_DST;
      break;
    }
    case Direction::backward_filter: {
      const auto description = backward<dnnl::convolution_backward_weights>(engine, arguments);
      create(dnnl::convolution_backward_weights(), description, description.diff_weights_desc());
      filter_name = DNNL_ARG_DIFF_WEIGHTS;
      y_name = DNNL_ARG_DIFF_DST;
      break;
    }
  }
  // The filter is reordered between its two layouts. Throws if oneDNN cannot.
  const memory::desc held = onednn::filter_layout(s, type, /*any=*/false);
  if (filter_ != held)
    dnnl::reorder::primitive_desc(engine, filter_is_output ? filter_ : held, engine,
                                  filter_is_output ? held : filter_);
  const auto empty = [&](const memory::desc& layout) { return memory(layout, engine, DNNL_MEMORY_NONE); };
  for (int thread = 0; thread < threads; ++thread) {
    Call call{.stream = dnnl::stream(engine),
              .x = empty(arguments.x),
              .filter = empty(filter_),
              .bias = key.bias ? empty(arguments.bias) : memory(),
              .y = empty(arguments.y),
              .scratchpad = empty(scratchpad_),
              .arguments = {}};
    call.arguments = {{x_name, call.x},
                      {filter_name, call.filter},
                      {y_name, call.y},
                      {DNNL_ARG_SCRATCHPAD, call.scratchpad}};
    if (key.bias) call.arguments.emplace(DNNL_ARG_BIAS, call.bias);
    calls_.push_back(std::move(call));
  }
}

void Convolution::run(int thread, const ConvData& data, void* scratchpad) {
  Call& call = calls_[static_cast<std::size_t>(thread)];
  call.x.set_data_handle(data.x);
  call.filter.set_data_handle(data.filter);
  if (call.bias) call.bias.set_data_handle(data.bias);
  call.y.set_data_handle(data.y);
  call.scratchpad.set_data_handle(scratchpad);
  const SignalBlock block;
  primitive_.execute(call.stream, call.arguments);
  call.stream.wait();
}

/// The primitives of one stream, created on first use.
class ConvCache {
 public:
  explicit ConvCache(const CpuStream& stream)
      : engine_(dnnl::engine::kind::cpu, 0), threads_(stream.threads()) {}

  /// A primitive, or why oneDNN cannot make it.
  struct Entry {
    std::unique_ptr<Convolution> convolution;
    std::string refusal;
  };

  const Entry& get(const ConvKey& key) {
    const auto [entry, is_new] = convolutions_.try_emplace(key);
    if (!is_new) return entry->second;
    try {
      entry->second.convolution = std::make_unique<Convolution>(engine_, key, threads_);
    } catch (const dnnl::error& error) {
      entry->second.refusal = fmt::format("{} (status {})", error.what(), static_cast<int>(error.status));
    }
    return entry->second;
  }
  /// Copies a filter to another layout or type.
  void reorder(const memory::desc& from_layout, void* from, const memory::desc& to_layout, void* to) {
    set_library_threads(1);
    memory source(from_layout, engine_, from), destination(to_layout, engine_, to);
    dnnl::stream stream(engine_);
    dnnl::reorder(source, destination).execute(stream, source, destination);
    stream.wait();
  }

 private:
  dnnl::engine engine_;
  int threads_;
  std::map<ConvKey, Entry> convolutions_;
};

/// How the images of a batch are split. The first n % blocks blocks have one image more than the others.
class ImageBlocks {
 public:
  explicit ImageBlocks(const ConvSizes& s) : images_(s.n) {
    constexpr std::int64_t kMinImages = 4, kMaxBlocks = 32;
    constexpr std::int64_t kMinWork = std::int64_t{1} << 21;  // multiplications of a block: about 50 us
    const std::int64_t work = s.n * s.oh * s.ow * s.o * s.kh * s.kw * s.group_inputs();
    if (s.n >= kMinImages) count_ = std::clamp<std::int64_t>(work / kMinWork, 1, std::min(s.n, kMaxBlocks));
  }
  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t block) const {
    return block * (images_ / count_) + std::min(block, images_ % count_);
  }
  std::int64_t size(std::int64_t block) const { return begin(block + 1) - begin(block); }
  /// Returns whether the library splits the work between threads of its own.
  bool uses_library_threads() const { return images_ < 4; }

 private:
  std::int64_t images_;
  std::int64_t count_ = 1;
};

/// One convolution of a batch: its blocks and their primitives.
class BlockedConvolution {
 public:
  BlockedConvolution(CpuStream& stream, Direction direction, DType dtype, bool bias, const ConvSizes& sizes)
      : stream_(stream), sizes_(sizes), bytes_(size_of(dtype)), blocks_(sizes), scratchpads_(stream) {
    const auto primitive = [&](std::int64_t images) {
      ConvKey key{direction, dtype, bias, blocks_.uses_library_threads() ? stream.threads() : 1, sizes};
      key.sizes.n = images;
      const ConvCache::Entry& entry = stream.local<ConvCache>().get(key);
      if (!entry.convolution) refusal_ = entry.refusal;
      return entry.convolution.get();
    };
    large_ = primitive(blocks_.size(0));
    small_ = primitive(blocks_.size(blocks_.count() - 1));
    if (!refusal_.empty()) return;
    // One filter serves all blocks, so both primitives must agree on its layout.
    if (small_->filter_layout() != large_->filter_layout()) {
      refusal_ = fmt::format("two layouts of a filter for {} and {} images", blocks_.size(0),
                             blocks_.size(blocks_.count() - 1));
      return;
    }
    scratchpad_bytes_ = std::max(large_->scratchpad_bytes(), small_->scratchpad_bytes());
    scratchpad_bytes_ = (scratchpad_bytes_ + 63) / 64 * 64;
  }

  /// Returns why oneDNN has no primitive, or "". The other functions may be called only if it is "".
  const std::string& refusal() const { return refusal_; }
  const memory::desc& filter_layout() const { return large_->filter_layout(); }
  std::int64_t blocks() const { return blocks_.count(); }

  /// Computes all blocks. The filter of block b starts at `filter` + b `filter_stride` (bytes).
  void run(const void* x, const void* filter, std::size_t filter_stride, const void* bias, const void* y) {
    auto* const scratchpads = static_cast<std::byte*>(
        scratchpads_.get(scratchpad_bytes_ * static_cast<std::size_t>(stream_.threads())));
    const std::int64_t x_bytes = sizes_.h * sizes_.w * sizes_.i * bytes_;
    const std::int64_t y_bytes = sizes_.oh * sizes_.ow * sizes_.o * bytes_;
    const int library_threads = blocks_.uses_library_threads() ? stream_.threads() : 1;
    parallel_for_each(stream_, blocks_.count(), [&](int thread, std::int64_t block) {
      set_library_threads(library_threads);
      const std::int64_t first = blocks_.begin(block);
      Convolution& convolution = blocks_.size(block) == blocks_.size(0) ? *large_ : *small_;
      convolution.run(thread,
                      {.x = at(x, first * x_bytes),
                       .filter = at(filter, block * static_cast<std::int64_t>(filter_stride)),
                       .bias = at(bias, 0),
                       .y = at(y, first * y_bytes)},
                      scratchpads + scratchpad_bytes_ * static_cast<std::size_t>(thread));
    });
  }

 private:
  /// oneDNN takes the addresses of inputs and outputs as void*.
  static void* at(const void* array, std::int64_t offset) {
    return array == nullptr ? nullptr : const_cast<std::byte*>(static_cast<const std::byte*>(array) + offset);
  }

  CpuStream& stream_;
  ConvSizes sizes_;
  std::int64_t bytes_;  // of an element of the images
  ImageBlocks blocks_;
  Convolution* large_;
  Convolution* small_;
  std::size_t scratchpad_bytes_ = 0;
  Workspace scratchpads_;
  std::string refusal_;
};

/// Returns f(), and turns an error of oneDNN into a DeviceError that names the sizes.
template <class F>
std::string with_named_errors(const ConvSizes& s, const F& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    fail<DeviceError>(
        "conv2d of x [{}, {}, {}, {}] with filter [{}, {}, {}, {}] failed in oneDNN: {} (status {})", s.n,
        s.h, s.w, s.i, s.o, s.kh, s.kw, s.group_inputs(), error.what(), static_cast<int>(error.status));
  }
}

/// Computes the two directions that read the filter.
std::string run_with_filter(CpuStream& stream, Direction direction, const ConvSizes& sizes, DType dtype,
                            const void* x, ConstView filter, const void* bias, const void* y) {
  return with_named_errors(sizes, [&] {
    BlockedConvolution convolution(stream, direction, dtype, bias != nullptr, sizes);
    if (!convolution.refusal().empty()) return convolution.refusal();
    Workspace packed(stream);
    const void* data = filter.data;
    const memory::desc held = filter_layout(sizes, type_of(dtype), /*any=*/false);
    if (convolution.filter_layout() != held) {
      void* const to = packed.get(convolution.filter_layout().get_size());
      stream.local<ConvCache>().reorder(held, const_cast<void*>(data), convolution.filter_layout(), to);
      data = to;
    }
    convolution.run(x, data, 0, bias, y);
    return std::string();
  });
}

/// Computes sums[i] += the i-th element of each of the `count` - 1 arrays that follow, in order.
void add_blocks(CpuStream& stream, float* sums, std::int64_t size, std::int64_t count) {
  parallel_for(stream, size, kElementGrain / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 1; block < count; ++block)
      map_range<GradMode::accumulate>(
          begin, end, [](float value) { return value; }, sums, sums + block * size);
  });
}

}  // namespace

std::string convolution_forward(CpuStream& stream, const ConvSizes& sizes, ConstView x, ConstView filter,
                                ConstView bias, View y) {
  return run_with_filter(stream, Direction::forward, sizes, y.dtype, x.data, filter, bias.data, y.data);
}

std::string convolution_backward_data(CpuStream& stream, const ConvSizes& sizes, ConstView dy,
                                      ConstView filter, View dx) {
  return run_with_filter(stream, Direction::backward_data, sizes, dx.dtype, dx.data, filter, nullptr,
                         dy.data);
}

std::string convolution_backward_filter(CpuStream& stream, const ConvSizes& sizes, ConstView dy, ConstView x,
                                        View dfilter) {
  return with_named_errors(sizes, [&] {
    BlockedConvolution convolution(stream, Direction::backward_filter, x.dtype, false, sizes);
    if (!convolution.refusal().empty()) return convolution.refusal();
    const memory::desc& layout = convolution.filter_layout();
    const memory::desc held = filter_layout(sizes, type_of(dfilter.dtype), /*any=*/false);
    const bool in_place = layout == held && convolution.blocks() == 1;
    const std::size_t bytes = layout.get_size();
    Workspace blocks(stream);
    auto* const sums = static_cast<float*>(
        in_place ? dfilter.data : blocks.get(bytes * static_cast<std::size_t>(convolution.blocks())));
    convolution.run(x.data, sums, bytes, nullptr, dy.data);
    add_blocks(stream, sums, static_cast<std::int64_t>(bytes / sizeof(float)), convolution.blocks());
    if (!in_place) stream.local<ConvCache>().reorder(layout, sums, held, dfilter.data);
    return std::string();
  });
}

}  // namespace convoy::kernels::onednn
