// Tensors that share bytes: an image, and what transposing, slicing and broadcasting make of it. Copies nothing.
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

struct Tensor {
  float* data;
  std::vector<int> shape, stride;  // one element further along an axis is `stride` floats further in memory
};

std::vector<int> strides_of(const std::vector<int>& shape) {
  std::vector<int> stride(shape.size(), 1);
  for (std::size_t axis = shape.size() - 1; axis-- > 0;) stride[axis] = stride[axis + 1] * shape[axis + 1];
  return stride;
}

Tensor row_major(float* data, const std::vector<int>& shape) { return {data, shape, strides_of(shape)}; }

float& element(const Tensor& x, const std::vector<int>& index) {
  int offset = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * x.stride[axis];
  return x.data[offset];
}

Tensor transpose(Tensor x, int a, int b) {
  std::swap(x.shape[a], x.shape[b]);
  std::swap(x.stride[a], x.stride[b]);
  return x;
}

Tensor slice(Tensor x, int axis, int begin, int end) {
  x.data += begin * x.stride[axis];
  x.shape[axis] = end - begin;
  return x;
}

// Repeats a vector along new first axes, without copying it: the next element along them is the same one.
Tensor broadcast(Tensor x, const std::vector<int>& shape) {
  x.stride.insert(x.stride.begin(), shape.size() - x.shape.size(), 0);
  x.shape = shape;
  return x;
}

bool is_contiguous(const Tensor& x) { return x.stride == strides_of(x.shape); }

std::string text(const std::vector<int>& numbers) {
  std::string result = "[";
  for (int number : numbers) result += (result.size() > 1 ? ", " : "") + std::to_string(number);
  return result + "]";
}

int main(int count, char** arguments) {
  std::vector<float> memory(4 * 5 * 3), numbers(3);
  const Tensor image = row_major(memory.data(), {4, 5, 3});  // rows, columns, channels
  const std::pair<const char*, Tensor> views[] = {
      {"image", image},
      {"transposed", transpose(image, 0, 1)},
      {"channels first", transpose(transpose(image, 1, 2), 0, 1)},
      {"columns 1 to 3", slice(image, 1, 1, 4)},
      {"channel 0", slice(image, 2, 0, 1)},
      {"rows 2 and 3", slice(image, 0, 2, 4)},
      {"bias", broadcast(row_major(numbers.data(), {3}), {4, 5, 3})},
  };
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (is_json) {
    const char* separator = "{";
    for (const auto& [name, view] : views) {
      std::printf("%s\"%s\": {\"shape\": %s, \"stride\": %s}", separator, name, text(view.shape).c_str(),
                  text(view.stride).c_str());
      separator = ",\n";
    }
    std::printf("}\n");
    return 0;
  }
  std::printf("%-16s %-12s %-13s %s\n", "", "shape", "strides", "contiguous");
  for (const auto& [name, view] : views)
    std::printf("%-16s %-12s %-13s %s\n", name, text(view.shape).c_str(), text(view.stride).c_str(),
                is_contiguous(view) ? "yes" : "no");
  element(transpose(image, 0, 1), {4, 2, 1}) = 7;
  std::printf("image[2][4][1] = %g\n", static_cast<double>(element(image, {2, 4, 1})));
}
