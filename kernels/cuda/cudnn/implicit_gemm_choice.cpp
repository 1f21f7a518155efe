#include "convoy/kernels/cuda/cudnn/implicit_gemm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convoy/kernels/cuda/implicit_gemm/channel_padding.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3_filter.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels {
namespace {

using implicit_gemm::BlockPixels;
using implicit_gemm::Instruction;

Shape shape_of_x(const ConvSizes& s) { return {s.n, s.h, s.w, s.i}; }
Shape shape_of_y(const ConvSizes& s) { return {s.n, s.oh, s.ow, s.o}; }
Shape shape_of_filter(const ConvSizes& s) { return {s.o, s.kh, s.kw, s.i}; }

/// Returns the sizes with as many input channels as the tensor cores multiply at a time, if there are fewer and
/// copies with more may replace the arrays. An added gradient would be rounded twice.
ConvSizes padded_sizes(const Conv2dProblem& problem) {
  constexpr int kDepth = 16;
  ConvSizes s = problem.sizes;
  const bool is_copied =
      problem.direction == Conv2dDirection::forward ||
      (problem.direction == Conv2dDirection::backward_filter && problem.mode == GradMode::overwrite);
  if (is_copied && s.i < kDepth && s.groups == 1) s.i = kDepth;
  return s;
}

/// Returns all variants for a result of this shape, the default one first.
std::vector<ImplicitGemm> variants_for(const CudaStream& stream, const Shape& out) {
  const implicit_gemm::Variant first = implicit_gemm::default_variant(stream, out);
  std::vector<ImplicitGemm> all;
  all.push_back({.variant = first});
  for (const Instruction instruction : {Instruction::wgmma, Instruction::mma_sync})
    for (const BlockPixels pixels : {BlockPixels::small, BlockPixels::large})
      if ((instruction == Instruction::mma_sync || implicit_gemm::has_wgmma(stream)) &&
          (instruction != first.instruction || pixels != first.pixels))
        all.push_back({.variant = {pixels, instruction}});
  return all;
}

/// Returns the number of ranges that a model suggests, half and twice as many.
std::vector<ImplicitGemm> ranges_for(const ConvSizes& sizes) {
  const int ranges = implicit_gemm::filter_ranges(sizes);
  std::vector<ImplicitGemm> all;
  for (const int count : {ranges, 2 * ranges, ranges / 2})
    if (count > 0) all.push_back({.ranges = count});
  return all;
}

}  // namespace

std::vector<ImplicitGemm> ImplicitGemm::all_for(const CudaStream& stream, const Conv2dProblem& problem) {
  if (problem.has_epilogue() || problem.alignment < kCudnnAlignment) return {};
  const ConvSizes s = padded_sizes(problem);
  switch (problem.direction) {
    case Conv2dDirection::forward:
      if (implicit_gemm::supports_forward(problem.dtype, s)) return variants_for(stream, shape_of_y(s));
      break;
    case Conv2dDirection::backward_data:
      if (implicit_gemm::supports_backward_data(problem.dtype, s)) return variants_for(stream, shape_of_x(s));
      break;
    case Conv2dDirection::backward_filter:
      if (implicit_gemm::supports_backward_filter(problem.dtype, s)) return ranges_for(s);
      break;
  }
  return {};
}

std::optional<ImplicitGemm> ImplicitGemm::default_for(const CudaStream& stream,
                                                      const Conv2dProblem& problem) {
  const std::vector<ImplicitGemm> all = all_for(stream, problem);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

std::optional<ImplicitGemm> ImplicitGemm::from_text(const CudaStream& stream, const Conv2dProblem& problem,
                                                    std::string_view text) {
  for (const ImplicitGemm& one : all_for(stream, problem))
    if (one.to_text() == text) return one;
  return std::nullopt;
}

std::string ImplicitGemm::to_text() const {
  if (ranges > 0) return fmt::format("implicit_gemm ranges {}", ranges);
  return fmt::format("implicit_gemm {}{}", static_cast<int>(variant.pixels),
                     variant.instruction == Instruction::wgmma ? " wgmma" : "");
}

void ImplicitGemm::enqueue(CudaStream& stream, const Conv2dProblem& problem,
                           const Conv2dArrays& arrays) const {
  const ConvSizes s = padded_sizes(problem);
  const bool is_padded = s.i != problem.sizes.i;
  View x{arrays.x, shape_of_x(problem.sizes), problem.dtype};
  View filter{arrays.filter, shape_of_filter(problem.sizes), problem.dtype};
  const View y{arrays.y, shape_of_y(s), problem.dtype}, given_filter = filter;
  std::optional<cuda::Scratch> wide_x, wide_filter;
  if (is_padded) {
    const auto widen = [&](std::optional<cuda::Scratch>& memory, const Shape& shape) {
      memory.emplace(stream, static_cast<std::size_t>(shape.numel()) * size_of(problem.dtype));
      return View{memory->as<void>(), shape, problem.dtype};
    };
    const View given_x = std::exchange(x, widen(wide_x, shape_of_x(s)));
    filter = widen(wide_filter, shape_of_filter(s));
    implicit_gemm::pad_channels(stream, given_x, x);
  }
  switch (problem.direction) {
    case Conv2dDirection::forward:
      if (is_padded) implicit_gemm::pad_channels(stream, given_filter, filter);
      return implicit_gemm::forward(stream, x, filter, y, variant);
    case Conv2dDirection::backward_data:
      return implicit_gemm::backward_data(stream, y, filter, GradView(x, problem.mode), variant);
    case Conv2dDirection::backward_filter:
      implicit_gemm::backward_filter(stream, y, x, GradView(filter, problem.mode), ranges);
      if (is_padded) implicit_gemm::cut_channels(stream, filter, given_filter);
  }
}

}  // namespace convoy::kernels
