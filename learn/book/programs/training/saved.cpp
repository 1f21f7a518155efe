// Counts what a training step of 12 layers keeps in memory, in units of one activation, as JSON.
#include <algorithm>
#include <cstdio>
#include <vector>

const int kLayers = 12;

struct Memory {
  int alive = 0;
  std::vector<int> curve;
  void add(int activations) { curve.push_back(alive += activations); }
};

// Each layer saves its input for the backward pass. Without freeing, everything lives until the end.
Memory keeps_all() {
  Memory memory;
  for (int layer = 0; layer < kLayers; ++layer) memory.add(1);
  for (int layer = kLayers; layer-- > 0;) memory.add(1);  // the gradient of the layer's input
  return memory;
}

// The backward function of a layer makes one gradient, and frees the gradient before it and what it has saved.
Memory frees() {
  Memory memory;
  for (int layer = 0; layer < kLayers; ++layer) memory.add(1);
  for (int layer = kLayers; layer-- > 0;) {
    memory.add(layer == kLayers - 1 ? 1 : 0);
    memory.add(-1);
  }
  return memory;
}

// Keeps the input of each segment only. Computes a segment again when the backward pass comes to it.
Memory checkpoints(int segment) {
  Memory memory;
  for (int layer = 0; layer < kLayers; ++layer) memory.add(layer % segment == 0 ? 1 : 0);
  for (int begin = kLayers - segment; begin >= 0; begin -= segment) {
    for (int layer = begin + 1; layer < begin + segment; ++layer) memory.add(1);
    for (int layer = begin + segment; layer-- > begin;) {
      memory.add(layer == kLayers - 1 ? 1 : 0);
      memory.add(-1);
    }
  }
  return memory;
}

void print(const char* name, const Memory& memory) {
  std::printf("\"%s\": {\"peak\": %d, \"curve\": [", name,
              *std::max_element(memory.curve.begin(), memory.curve.end()));
  for (std::size_t i = 0; i < memory.curve.size(); ++i)
    std::printf("%s%d", i == 0 ? "" : ", ", memory.curve[i]);
  std::printf("]}");
}

int main() {
  std::printf("{");
  print("keeps_all", keeps_all());
  std::printf(",\n");
  print("frees", frees());
  std::printf(",\n");
  print("checkpoints_4", checkpoints(4));
  std::printf("}\n");
}
