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
  dnnl::memory::dims stride, dilation, padding;  // a dilation of 0: none
  dnnl::primitive_attr attributes;
};

/// Returns whether the processor has all instructions of a set, as far as ONEDNN_MAX_CPU_ISA permits them. This
/// decides what is fast. What oneDNN supports is asked of each primitive.
inline bool has_instructions(dnnl::cpu_isa wanted) {
  const auto mask = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & mask) == mask;
}
/// Returns whether the processor has dot-product instructions for bf16 (AVX512_BF16). oneDNN can emulate them
/// by shifting bits, which is slower than f32.
inline bool has_bf16_gemm() { return has_instructions(dnnl::cpu_isa::avx512_core_bf16); }
/// Returns whether the processor has tile instructions for bf16 matrices (AMX), which run at 16 times the
/// rate of f32.
inline bool has_bf16_tiles() { return has_instructions(dnnl::cpu_isa::avx512_core_amx); }

// The primitive descriptors of the forward convolution, and of a gradient: Primitive is
// dnnl::convolution_backward_data or dnnl::convolution_backward_weights.
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
          a.dilation,
          a.padding,
          a.padding,
          a.attributes};
}

template <class Primitive>
typename Primitive::primitive_desc backward(const dnnl::engine& engine, const ConvolutionArguments& a) {
  return {engine,      dnnl::algorithm::convolution_direct,
          a.x,         a.filter,
          a.y,         a.stride,
          a.dilation,  a.padding,
          a.padding,   forward(engine, a),
          a.attributes};
}

#else

inline dnnl::convolution_forward::primitive_desc forward(const dnnl::engine& engine,
                                                         const ConvolutionArguments& a) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, a.x, a.forward_filter,
           a.bias, a.y, a.stride, a.dilation, a.padding, a.padding},
          a.attributes,
          engine};
}

template <class Primitive>
typename Primitive::primitive_desc backward(const dnnl::engine& engine, const ConvolutionArguments& a) {
  return {
      {dnnl::algorithm::convolution_direct, a.x, a.filter, a.y, a.stride, a.dilation, a.padding, a.padding},
      a.attributes,
      engine,
      forward(engine, a)};
}

#endif

}  // namespace convoy::kernels::onednn
