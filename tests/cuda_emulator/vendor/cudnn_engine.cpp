#include "tests/cuda_emulator/vendor/cudnn_engine.h"

#include <algorithm>

namespace convoy::emulator {
namespace {

using namespace cudnn_engine;  // NOLINT: the engine constants

constexpr std::int64_t kVectorBytes = 16;  // read by tensor cores at a time
constexpr std::int64_t kTiles = 25;        // values of the knob TILE_SIZE of kTensorCore
constexpr std::int64_t kKnobsTiles = 19;   // and of kKnobs

bool is_half(const Tensor& tensor) {
  return tensor.type == CUDNN_DATA_HALF || tensor.type == CUDNN_DATA_BFLOAT16;
}

bool is_channels_last(const Tensor& tensor) {
  const std::vector<std::int64_t>& d = tensor.dims;
  return tensor.strides == std::vector<std::int64_t>{d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
}

bool fills_vectors(const Tensor& tensor) {
  const auto bytes = tensor.dims[1] * static_cast<std::int64_t>(size_of(tensor.element()));
  return bytes % kVectorBytes == 0 && tensor.alignment % kVectorBytes == 0;
}

/// Returns the tensors of the convolution itself.
std::vector<Tensor> operands(const ConvolutionOperation& op) { return {op.x, op.w, op.y}; }

void check_types(const ConvolutionOperation& op) {
  for (const Tensor& tensor : operands(op))
    if (!is_half(tensor) && tensor.type != CUDNN_DATA_FLOAT)
      refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "no engine supports double precision");
  const Tensor& output = op.output();
  for (const Tensor& tensor : operands(op))
    if (tensor.type != op.x.type && !(tensor.id == output.id && output.is_virtual))
      refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the tensors of a convolution have different types");
  if (op.convolution.compute != CUDNN_DATA_FLOAT)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the compute type must be single precision");
}

/// Checks that the first operand is the previous output and that a bias has one value per channel.
void check_link(const Tensor& before, const PointwiseOperation& op) {
  const auto expect = [](bool condition, const std::string& why) {
    if (!condition) refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, why);
  };
  expect(op.x.id == before.id, "the operations do not form a chain");
  expect(before.is_virtual, "an intermediate tensor must be virtual");
  expect(before.type == CUDNN_DATA_FLOAT, "an intermediate tensor must be in single precision");
  expect(op.pointwise.compute == CUDNN_DATA_FLOAT, "an epilogue must compute in single precision");
  if (op.b.has_value())
    expect(op.b->dims == std::vector<std::int64_t>{1, op.x.dims[1], 1, 1} && !op.b->is_virtual,
           "a bias must be an array with one value per channel");
}

Summation summation_of(const EngineChoice& choice, int runs_before) {
  const auto knob = [&](cudnnBackendKnobType_t type, std::int64_t default_value) {
    const auto found = choice.knobs.find(type);
    return found != choice.knobs.end() ? found->second : default_value;
  };
  switch (choice.engine) {
    case kTensorCore: return {.parts = 2};
    case kNondeterministic: return {.parts = 3, .descending = runs_before % 2 == 1};
    case kGreedy: return {.parts = 4, .descending = true};
    case kKnobs:
      return {.parts = static_cast<int>(knob(CUDNN_KNOB_TYPE_SPLIT_K, 1)),
              .descending = knob(CUDNN_KNOB_TYPE_TILE_SIZE, 0) % 2 == 1};
    default: return {};
  }
}

std::size_t elements_of(const Tensor& tensor) {
  std::size_t elements = 1;
  for (const std::int64_t size : tensor.dims) elements *= static_cast<std::size_t>(size);
  return elements;
}

/// Calls f(i, offset) for each element, in channels-last order. `offset` is the position in the array.
template <class F>
void for_each_element(const Tensor& tensor, const F& f) {
  const std::vector<std::int64_t>&d = tensor.dims, &s = tensor.strides;
  std::size_t i = 0;
  for (std::int64_t n = 0; n < d[0]; ++n)
    for (std::int64_t h = 0; h < d[2]; ++h)
      for (std::int64_t w = 0; w < d[3]; ++w)
        for (std::int64_t c = 0; c < d[1]; ++c, ++i) f(i, n * s[0] + c * s[1] + h * s[2] + w * s[3]);
}

std::vector<float> read(const Tensor& tensor, const Arrays& arrays, bool to_tf32 = false) {
  const void* const array = arrays.at(tensor.id);
  const Element type = tensor.element();
  std::vector<float> values(elements_of(tensor));
  for_each_element(tensor, [&](std::size_t i, std::int64_t offset) {
    const float value = load<float>(type, array, offset);
    values[i] = to_tf32 ? rounded_to_tf32(value) : value;
  });
  return values;
}

/// Returns the channels of one of `groups` groups from an array [..., channels].
std::vector<float> channels_of(const std::vector<float>& values, std::size_t channels, std::size_t groups,
                               std::size_t group) {
  const std::size_t count = channels / groups;
  std::vector<float> part;
  for (std::size_t first = group * count; first < values.size(); first += channels)
    part.insert(part.end(), values.begin() + static_cast<std::ptrdiff_t>(first),
                values.begin() + static_cast<std::ptrdiff_t>(first + count));
  return part;
}

/// Returns one of `groups` equal parts of an array.
std::vector<float> part_of(const std::vector<float>& values, std::size_t groups, std::size_t group) {
  const std::size_t count = values.size() / groups;
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(group * count);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

/// Returns the sums of a convolution with several groups: a convolution per group.
std::vector<float> grouped_sums_of(const ConvolutionOperation& op, Summation order, bool to_tf32,
                                   const Arrays& arrays) {
  const auto groups = static_cast<std::size_t>(op.groups());
  ConvolutionShape shape = op.shape();
  const auto inputs = static_cast<std::size_t>(shape.c), outputs = static_cast<std::size_t>(shape.k);
  shape.c /= static_cast<int>(groups);
  shape.k /= static_cast<int>(groups);
  const auto dense = [&](const Tensor& tensor) {
    return tensor.id == op.output().id ? std::vector<float>() : read(tensor, arrays, to_tf32);
  };
  const std::vector<float> x = dense(op.x), w = dense(op.w), y = dense(op.y);
  std::vector<float> result(elements_of(op.output()));
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t elements = result.size() / groups;
    std::vector<float> partials(elements * static_cast<std::size_t>(order.parts)), part(elements);
    Sums<float> sums(order, elements, partials.data());
    const auto x_part = channels_of(x, inputs, groups, group), w_part = part_of(w, groups, group),
               y_part = channels_of(y, outputs, groups, group);
    std::size_t channels = outputs;
    switch (op.direction) {
      case Direction::forward: convolve_forward(shape, x_part.data(), w_part.data(), sums); break;
      case Direction::data:
        convolve_backward_data(shape, y_part.data(), w_part.data(), sums);
        channels = inputs;
        break;
      case Direction::filter:
        convolve_backward_filter(shape, y_part.data(), x_part.data(), sums);
        channels = result.size();  // the filters of a group are adjacent
        break;
    }
    sums.finish(part.data());
    const std::size_t count = channels / groups;
    for (std::size_t i = 0; i < elements; ++i)
      result[i / count * channels + group * count + i % count] = part[i];
  }
  return result;
}

std::vector<float> sums_of(const ConvolutionOperation& op, Summation order, bool to_tf32,
                           const Arrays& arrays, float* partials) {
  if (op.groups() > 1) return grouped_sums_of(op, order, to_tf32, arrays);
  std::vector<float> result(elements_of(op.output()));
  std::vector<float> own_partials;
  if (partials == nullptr) {
    own_partials.resize(result.size() * static_cast<std::size_t>(order.parts));
    partials = own_partials.data();
  }
  Sums<float> sums(order, result.size(), partials);
  const auto dense = [&](const Tensor& tensor) { return read(tensor, arrays, to_tf32); };
  switch (op.direction) {
    case Direction::forward:
      convolve_forward(op.shape(), dense(op.x).data(), dense(op.w).data(), sums);
      break;
    case Direction::data:
      convolve_backward_data(op.shape(), dense(op.y).data(), dense(op.w).data(), sums);
      break;
    case Direction::filter:
      convolve_backward_filter(op.shape(), dense(op.y).data(), dense(op.x).data(), sums);
      break;
  }
  sums.finish(result.data());
  return result;
}

void apply(const PointwiseOperation& op, const Arrays& arrays, std::vector<float>& values) {
  const auto alpha1 = static_cast<float>(op.alpha1), alpha2 = static_cast<float>(op.alpha2);
  const std::vector<float> bias = op.b.has_value() ? read(*op.b, arrays) : std::vector<float>();
  const auto minimum = static_cast<float>(op.pointwise.lower_clip);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = alpha1 * values[i];
    values[i] = op.b.has_value() ? x + alpha2 * bias[i % bias.size()] : x < minimum ? minimum : x;
  }
}

}  // namespace

FusedConvolution fused_convolution(const Graph& graph) {
  const auto* const first = std::get_if<ConvolutionOperation>(&graph.operations.front());
  if (first == nullptr)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "the first operation must be a convolution");
  FusedConvolution fused{.convolution = *first, .epilogue = {}};
  check_types(*first);
  if (first->convolution.strides.size() != 2)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "engines support only two spatial dimensions");
  if (first->convolution.mode != CUDNN_CROSS_CORRELATION)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "engines support only cross-correlation");
  std::vector<cudnnPointwiseMode_t> modes;
  for (std::size_t i = 1; i < graph.operations.size(); ++i) {
    const auto* const next = std::get_if<PointwiseOperation>(&graph.operations[i]);
    if (next == nullptr)
      refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "a graph must have only one convolution");
    check_link(fused.output(), *next);
    fused.epilogue.push_back(*next);
    modes.push_back(next->pointwise.mode);
  }
  const bool is_epilogue = std::is_sorted(modes.begin(), modes.end()) &&  // a bias before a ReLU
                           std::adjacent_find(modes.begin(), modes.end()) == modes.end();
  const bool is_possible = modes.empty() || (first->direction == Direction::forward && first->beta == 0);
  if (!is_epilogue || !is_possible)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
           "an epilogue must be a bias, a ReLU or both, of a forward convolution");
  if (fused.output().is_virtual || fused.output().type != first->x.type)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the output has another type than the input or is virtual");
  return fused;
}

std::string objection(std::int64_t engine, const FusedConvolution& fused) {
  const CudnnSettings& settings = vendor_state().settings.cudnn;
  const Tensor& x = fused.convolution.x;
  if (!fused.epilogue.empty()) {
    const bool fuses = is_half(x) ? settings.fuses_half : settings.fuses_f32;
    if (engine != kKnobs || !fuses) return "the engine does not fuse this type";
  }
  if (fused.convolution.beta != 0 && !settings.accumulates) return "no engine accumulates";
  switch (engine) {
    case kPlain: return "";
    case kTensorCore:
      for (const Tensor& tensor : operands(fused.convolution))
        if (!is_channels_last(tensor) || (!tensor.is_virtual && !fills_vectors(tensor)))
          return "the engine needs channels-last tensors with whole vectors";
      return "";
    case kRefused:
    case kNondeterministic:
    case kGreedy:
    case kKnobs:
      for (const Tensor& tensor : operands(fused.convolution))
        if (!is_channels_last(tensor)) return "the engine needs channels-last tensors";
      return "";
    default: return "unknown engine";
  }
}

std::vector<cudnnBackendNumericalNote_t> notes_of(std::int64_t engine) {
  if (engine == kNondeterministic) return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  if (engine == kTensorCore) return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  return {};
}

std::vector<cudnnBackendBehaviorNote_t> behavior_of(std::int64_t engine) {
  if (engine == kKnobs)
    return {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API};
  if (engine == kTensorCore) return {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API};
  return {};
}

void check_knobs(std::int64_t engine, const Knobs& knobs) {
  const std::int64_t tiles = engine == kTensorCore ? kTiles : engine == kKnobs ? kKnobsTiles : 0;
  for (const auto& [type, value] : knobs) {
    const bool is_tile = type == CUDNN_KNOB_TYPE_TILE_SIZE && value >= 0 && value < tiles;
    const bool is_split =
        engine == kKnobs && type == CUDNN_KNOB_TYPE_SPLIT_K && (value == 1 || value == 2 || value == 4);
    if (!is_tile && !is_split)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine " + std::to_string(engine) + " does not accept knob " +
                                             std::to_string(type) + " = " + std::to_string(value));
  }
}

std::size_t workspace_of(std::int64_t engine, const FusedConvolution& fused, const Knobs& knobs) {
  if (engine != kKnobs && engine != kGreedy) return 0;
  const auto parts = static_cast<std::size_t>(summation_of({engine, knobs}, 0).parts);
  const std::size_t needed = parts * elements_of(fused.convolution.output()) * sizeof(float);
  return engine == kKnobs ? needed : std::max(needed, vendor_state().settings.cudnn.greedy_workspace);
}

/// Returns what the heuristics list for a convolution that every engine accepts: 31, 38 or 40 configurations,
/// many of one engine with different knobs, of which 14, 8 or 7 come first. These are the numbers of the real
/// library (9.19, sm_90) for 128 images of 32x32x64 in bf16 and 64 filters 3x3.
std::vector<EngineChoice> proposals(Direction direction) {
  struct Counts {
    std::int64_t leading, tensor_core, knobs;
  };
  const Counts counts = direction == Direction::forward ? Counts{14, 23, 5}
                        : direction == Direction::data  ? Counts{8, 16, 19}
                                                        : Counts{7, 25, 12};
  std::vector<EngineChoice> all;
  const auto add_tensor_core = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile)
      all.push_back({.engine = kTensorCore, .knobs = {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}}});
  };
  const auto add_knobs = [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kSplits[] = {2, 4, 1};
    for (std::int64_t tile = begin; tile < end; ++tile)
      all.push_back(
          {.engine = kKnobs,
           .knobs = {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}, {CUDNN_KNOB_TYPE_SPLIT_K, kSplits[tile % 3]}}});
  };
  add_tensor_core(0, counts.leading);
  all.push_back({.engine = kNondeterministic});
  add_knobs(0, 2);
  all.push_back({.engine = kGreedy});
  all.push_back({.engine = kRefused});
  add_knobs(2, counts.knobs);
  add_tensor_core(counts.leading, counts.tensor_core);
  return all;
}

std::vector<EngineChoice> heuristics(const FusedConvolution& fused, cudnnBackendHeurMode_t mode) {
  std::vector<EngineChoice> listed;
  std::string why = "no engine accepts the graph";
  std::vector<EngineChoice> choices = mode == CUDNN_HEUR_MODE_FALLBACK
                                          ? std::vector<EngineChoice>{{kPlain}}
                                          : proposals(fused.convolution.direction);
  if (mode == CUDNN_HEUR_MODE_B) {  // in the real library too, most are other ones than those of mode A
    std::reverse(choices.begin(), choices.end());
    for (const std::int64_t tile : {18, 17})
      choices.push_back(
          {.engine = kKnobs, .knobs = {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}, {CUDNN_KNOB_TYPE_SPLIT_K, 4}}});
  }
  for (const EngineChoice& choice : choices) {
    const std::string refusal = objection(choice.engine, fused);
    if (refusal.empty())
      listed.push_back(choice);
    else
      why = refusal;
  }
  if (listed.empty()) refuse(CUDNN_STATUS_NOT_SUPPORTED, why);
  listed.resize(std::min(listed.size(), vendor_state().settings.cudnn.max_results));
  return listed;
}

void run(const FusedConvolution& fused, const EngineChoice& choice, const Arrays& arrays, void* workspace) {
  int& runs = vendor_state().counts.convolutions[choice.engine];
  const Summation order = summation_of(choice, runs++);
  const ConvolutionOperation& op = fused.convolution;
  const bool to_tf32 = choice.engine == kTensorCore && op.x.type == CUDNN_DATA_FLOAT;
  std::vector<float> values = sums_of(op, order, to_tf32, arrays, static_cast<float*>(workspace));
  const auto alpha = static_cast<float>(op.alpha), beta = static_cast<float>(op.beta);
  const std::vector<float> before = beta != 0 ? read(op.output(), arrays) : std::vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = alpha * values[i] + (beta != 0 ? beta * before[i] : 0);
  for (const PointwiseOperation& next : fused.epilogue) apply(next, arrays, values);
  void* const array = arrays.at(fused.output().id);
  for_each_element(fused.output(), [&, type = fused.output().element()](std::size_t i, std::int64_t offset) {
    store(type, array, offset, values[i]);
  });
}

}  // namespace convoy::emulator
