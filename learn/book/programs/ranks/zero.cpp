// Steps of Adam on 8 ranks in the four stages of ZeRO. Counts the bytes that a rank stores and sends.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../../../common/collectives.h"

using links::part, links::all_gather, links::all_reduce, links::reduce_scatter, links::Rank;
using Floats = std::span<float>;

const int kRanks = 8, kLayers = 8, kFloats = 8000, kSteps = 3;

enum Kind { kParameters, kGradients, kOptimizer, kKinds };

// The bytes of arrays that are alive on a rank, and the most of each kind and of all together.
struct Memory {
  long now[kKinds + 1] = {}, most[kKinds + 1] = {};
  void add(Kind kind, long bytes) {
    for (int each : {static_cast<int>(kind), static_cast<int>(kKinds)}) {
      now[each] += bytes;
      most[each] = std::max(most[each], now[each]);
    }
  }
};

class Array {
 public:
  Array(Memory& memory, Kind kind, std::size_t size) : memory_(memory), kind_(kind), values_(size) {
    memory_.add(kind_, 4 * static_cast<long>(values_.size()));
  }
  Array(const Array&) = delete;
  ~Array() { memory_.add(kind_, -4 * static_cast<long>(values_.size())); }
  Floats all() { return values_; }

 private:
  Memory& memory_;
  Kind kind_;
  std::vector<float> values_;
};

// What a rank keeps of a layer from one step to the next: all of it, or its part.
struct Layer {
  Array parameters, gradients, mean, square;
  Layer(Memory& memory, int stage)
      : parameters(memory, kParameters, stage >= 3 ? kFloats / kRanks : kFloats),
        gradients(memory, kGradients, stage >= 2 ? kFloats / kRanks : kFloats),
        mean(memory, kOptimizer, stage >= 1 ? kFloats / kRanks : kFloats),
        square(memory, kOptimizer, stage >= 1 ? kFloats / kRanks : kFloats) {}
};

// One step of Adam for some elements.
void adam(Floats parameters, Floats gradients, Floats mean, Floats square, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gradient = gradients[i] / kRanks;
    mean[i] += 0.1f * (gradient - mean[i]);
    square[i] += 0.001f * (gradient * gradient - square[i]);
    const float m = mean[i] / (1 - std::pow(0.9f, static_cast<float>(step)));
    const float v = square[i] / (1 - std::pow(0.999f, static_cast<float>(step)));
    parameters[i] -= 0.01f * m / (std::sqrt(v) + 1e-8f);
  }
}

// Stands for the backward pass of a layer: parameters are pulled to values of the rank's samples.
void compute_gradients(Floats parameters, Floats gradients, int rank, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    gradients[i] = parameters[i] - static_cast<float>((i * 7 + rank * 31 + step * 17) % 101) / 101;
}

void whole_step(Rank& rank, std::deque<Layer>& layers, int step) {
  for (Layer& layer : layers) {
    compute_gradients(layer.parameters.all(), layer.gradients.all(), rank.rank(), step);
    all_reduce(rank, layer.gradients.all());
  }
  for (Layer& layer : layers)
    adam(layer.parameters.all(), layer.gradients.all(), layer.mean.all(), layer.square.all(), step);
}

void sharded_step(Rank& rank, std::deque<Layer>& layers, int step) {
  for (Layer& layer : layers) {
    compute_gradients(layer.parameters.all(), layer.gradients.all(), rank.rank(), step);
    reduce_scatter(rank, layer.gradients.all());
  }
  for (Layer& layer : layers) {
    adam(part(layer.parameters.all(), rank.rank(), rank.size()),
         part(layer.gradients.all(), rank.rank(), rank.size()), layer.mean.all(), layer.square.all(), step);
    all_gather(rank, layer.parameters.all());
  }
}

void gradients_of_one_layer(Rank& rank, Layer& layer, Floats parameters, int step, Memory& memory) {
  Array whole(memory, kGradients, kFloats);
  compute_gradients(parameters, whole.all(), rank.rank(), step);
  const Floats own = reduce_scatter(rank, whole.all());
  std::copy(own.begin(), own.end(), layer.gradients.all().begin());
}  // the memory of `whole` is free for the next layer

void sharded_gradients_step(Rank& rank, std::deque<Layer>& layers, int step, Memory& memory) {
  for (Layer& layer : layers) gradients_of_one_layer(rank, layer, layer.parameters.all(), step, memory);
  for (Layer& layer : layers) {
    adam(part(layer.parameters.all(), rank.rank(), rank.size()), layer.gradients.all(), layer.mean.all(),
         layer.square.all(), step);
    all_gather(rank, layer.parameters.all());
  }
}

void gather_parameters(Rank& rank, Layer& layer, Floats whole) {
  const Floats own = layer.parameters.all();
  std::copy(own.begin(), own.end(), part(whole, rank.rank(), rank.size()).begin());
  all_gather(rank, whole);
}

void sharded_parameters_step(Rank& rank, std::deque<Layer>& layers, int step, Memory& memory) {
  for (Layer& layer : layers) {  // forward pass
    Array whole(memory, kParameters, kFloats);
    gather_parameters(rank, layer, whole.all());
  }
  for (Layer& layer : layers) {  // backward pass
    Array whole(memory, kParameters, kFloats);
    gather_parameters(rank, layer, whole.all());
    gradients_of_one_layer(rank, layer, whole.all(), step, memory);
  }
  for (Layer& layer : layers)
    adam(layer.parameters.all(), layer.gradients.all(), layer.mean.all(), layer.square.all(), step);
}

// Returns a number of the bits of all parameters, which each rank has or gathers.
std::uint32_t hash(Rank& rank, std::deque<Layer>& layers, int stage) {
  std::uint32_t result = 2166136261;
  for (Layer& layer : layers) {
    std::vector<float> whole(kFloats);
    if (stage == 3)
      gather_parameters(rank, layer, whole);
    else
      whole.assign(layer.parameters.all().begin(), layer.parameters.all().end());
    for (const float& value : whole) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      result = (result ^ bits) * 16777619;
    }
  }
  return result;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  std::printf(is_json ? "{" : "%d ranks, %d layers of %d parameters; bytes of one rank\n", kRanks, kLayers,
              kFloats);
  if (!is_json)
    std::printf(
        "stage   parameters   gradients   optimizer   all, at most   sent per step   bits of the parameters\n");
  for (int stage = 0; stage <= 3; ++stage) {
    Memory memories[kRanks];
    std::uint32_t hashes[kRanks] = {};
    const auto train = [&](Rank& rank, bool is_hashed) {
      Memory& memory = memories[rank.rank()] = {};
      std::deque<Layer> layers;
      for (int i = 0; i < kLayers; ++i) layers.emplace_back(memory, stage);
      for (int step = 1; step <= kSteps; ++step) {
        if (stage == 0) whole_step(rank, layers, step);
        if (stage == 1) sharded_step(rank, layers, step);
        if (stage == 2) sharded_gradients_step(rank, layers, step, memory);
        if (stage == 3) sharded_parameters_step(rank, layers, step, memory);
      }
      if (is_hashed) hashes[rank.rank()] = hash(rank, layers, stage);
    };
    const long sent = links::run(kRanks, {}, [&](Rank& rank) { train(rank, false); })[0].bytes_sent / kSteps;
    links::run(kRanks, {}, [&](Rank& rank) { train(rank, true); });
    for (std::uint32_t each : hashes)
      if (each != hashes[0]) std::printf("the ranks differ\n");
    const long* most = memories[0].most;
    if (is_json)
      std::printf(
          "%s\"%d\": {\"parameters\": %ld, \"gradients\": %ld, \"optimizer\": %ld, \"all\": %ld, \"sent\": %ld, \"bits\": \"%08x\"}",
          stage > 0 ? ",\n" : "", stage, most[kParameters], most[kGradients], most[kOptimizer], most[kKinds],
          sent, hashes[0]);
    else
      std::printf("%5d %12ld %11ld %11ld %14ld %15ld   %08x\n", stage, most[kParameters], most[kGradients],
                  most[kOptimizer], most[kKinds], sent, hashes[0]);
  }
  std::printf(is_json ? "}\n" : "");
}
