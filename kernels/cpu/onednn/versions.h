// A common interface to oneDNN 2 and 3. Version 3 dropped the operation descriptors between a primitive's
// arguments and its primitive descriptor. No other file depends on the version of oneDNN.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace convoy::kernels::onednn {

/// The arguments common to all three directions of a convolution. A gradient has the layout of its array.
struct ConvolutionArguments {
  dnnl::memory::desc x, filter, bias, y;  // an empty bias descriptor means no bias
  /// The filter as the forward convolution reads it. oneDNN derives gradients from the primitive descriptor
  /// of that convolution, and has none of bf16 images with the f32 filter that the filter's gradient is
  /// written to.
  dnnl::memory::desc forward_filter;
  dnnl::memory::dims stride, padding;
  dnnl::primitive_attr attributes;
};

/// Returns whether oneDNN has convolutions of bf16 arrays for the processor, with or without bf16
/// instructions (AVX-512).
inline bool computes_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & wanted) == wanted;
}

/// Returns whether the processor has dot-product instructions for bf16 (AVX512_BF16). oneDNN can emulate them
/// by shifting bits, which is slower than f32.
inline bool has_bf16_gemm() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & wanted) == wanted;
}

/// Returns whether the processor has tile instructions for bf16 matrices (AMX), which run at 16 times the
/// rate of f32.
inline bool has_bf16_tiles() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  return (isa & wanted) == wanted;
}

#if DNNL_VERSION_MAJOR >= 3

inline dnnl::convolution_forward::primitive_desc forward(const dnnl::engine& engine,
                                                         const ConvolutionArguments& a) {
  return {engine,
          dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          a.x,
          a.forward_filter,
          a.bias,
          a.y,
          a.stride,
          a.padding,
          a.padding,
          a.attributes};
}

inline dnnl::convolution_backward_data::primitive_desc backward_data(const dnnl::engine& engine,
                                                                     const ConvolutionArguments& a) {
  return {engine,
          dnnl::algorithm::convolution_direct,
          a.x,
          a.filter,
          a.y,
          a.stride,
          a.padding,
          a.padding,
          forward(engine, a),
          a.attributes};
}

inline dnnl::convolution_backward_weights::primitive_desc backward_filter(const dnnl::engine& engine,
                                                                          const ConvolutionArguments& a) {
  return {engine,
          dnnl::algorithm::convolution_direct,
          a.x,
          a.filter,
          a.y,
          a.stride,
          a.padding,
          a.padding,
          forward(engine, a),
          a.attributes};
}

#else

inline dnnl::convolution_forward::primitive_desc forward(const dnnl::engine& engine,
                                                         const ConvolutionArguments& a) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, a.x, a.forward_filter,
           a.bias, a.y, a.stride, a.padding, a.padding},
          a.attributes,
          engine};
}

inline dnnl::convolution_backward_data::primitive_desc backward_data(const dnnl::engine& engine,
                                                                     const ConvolutionArguments& a) {
  return {{dnnl::algorithm::convolution_direct, a.x, a.filter, a.y, a.stride, a.padding, a.padding},
          a.attributes,
          engine,
          forward(engine, a)};
}

inline dnnl::convolution_backward_weights::primitive_desc backward_filter(const dnnl::engine& engine,
                                                                          const ConvolutionArguments& a) {
  return {{dnnl::algorithm::convolution_direct, a.x, a.filter, a.y, a.stride, a.padding, a.padding},
          a.attributes,
          engine,
          forward(engine, a)};
}

#endif

}  // namespace convoy::kernels::onednn
