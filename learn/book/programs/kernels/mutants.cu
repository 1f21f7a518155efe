// Tests of a kernel that computes the mean and the variance of rows, and what they find in nine mutants of it.
// mutants: a table; mutants N: runs all tests with mutant N alone; mutants --json
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

template <int mutant>
__device__ float block_sum(float value, float* partials) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 16; d > (mutant == 1 ? 1 : 0); d /= 2) value += __shfl_xor_sync(0xffffffff, value, d);
  if (lane == 0) partials[warp] = value;
  if (mutant != 2) __syncthreads();
  float sum = partials[0];
  for (int other = mutant == 3 ? 0 : 1; other < 2; ++other) sum += partials[other];
  if (mutant != 4) __syncthreads();
  return sum;
}

// One block of 64 threads per row of n elements.
template <int mutant>
__global__ void statistics(const float* x, float* mean, float* variance, int n) {
  __shared__ float partials[2];
  const int end = mutant == 5 ? n / 32 * 32 : n;
  x += blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < end; i += 64) sum += x[i];
  const float center = block_sum<mutant>(sum, partials) / (mutant == 6 ? 64 : n);
  sum = 0;
  for (int i = threadIdx.x; i < end; i += 64) sum += (x[i] - center) * (x[i] - (mutant == 7 ? 0 : center));
  const float squares = block_sum<mutant>(sum, partials);
  if (threadIdx.x > 0) return;
  mean[mutant == 8 ? 0 : blockIdx.x] = center;
  variance[mutant == 8 ? 0 : blockIdx.x] = squares / (mutant == 9 ? fmaxf(n - 1, 1) : n);
}

using Kernel = void (*)(const float*, float*, float*, int rows, int n);
template <int mutant>
void launch(const float* x, float* mean, float* variance, int rows, int n) {
  statistics<mutant><<<rows, 64>>>(x, mean, variance, n);
}
const Kernel kKernels[] = {launch<0>, launch<1>, launch<2>, launch<3>, launch<4>,
                           launch<5>, launch<6>, launch<7>, launch<8>, launch<9>};
const char* const kNames[] = {"none",
                              "a round of shuffles is missing",
                              "no barrier before the read",
                              "warp 0 counts twice",
                              "no barrier after the read",
                              "the last n % 32 are missing",
                              "divides by 64, not n",
                              "the second factor is x",
                              "all rows write row 0",
                              "divides by n - 1"};

// Whether the results are those of the definition.
bool passes(Kernel kernel, int rows, int n, float (*value)(int)) {
  std::vector<float> host(rows * n), means(rows), variances(rows);
  for (int i = 0; i < rows * n; ++i) host[i] = value(i);
  float *x, *mean, *variance;
  cudaMalloc(&x, rows * n * sizeof(float));
  cudaMalloc(&mean, rows * sizeof(float));
  cudaMalloc(&variance, rows * sizeof(float));
  cudaMemset(mean, 0, rows * sizeof(float));
  cudaMemset(variance, 0, rows * sizeof(float));
  cudaMemcpy(x, host.data(), rows * n * sizeof(float), cudaMemcpyHostToDevice);
  kernel(x, mean, variance, rows, n);
  cudaMemcpy(means.data(), mean, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(variances.data(), variance, rows * sizeof(float), cudaMemcpyDeviceToHost);
  for (float* array : {x, mean, variance}) cudaFree(array);
  for (int row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; ++i) sum += host[row * n + i];
    const double center = sum / n;
    for (int i = 0; i < n; ++i) squares += std::pow(host[row * n + i] - center, 2);
    if (!(std::fabs(means[row] - center) <= 1e-6 * std::fabs(center))) return false;
    if (!(std::fabs(variances[row] - squares / n) <= 1e-4 * squares / n + 1e-6)) return false;
  }
  return true;
}

bool ones(Kernel kernel) {
  return passes(kernel, 1, 64, [](int) { return 1.0f; });
}
float different(int i) { return float(i * 7 % 11) + 1; }
bool one_row(Kernel kernel) { return passes(kernel, 1, 64, different); }
bool three_rows(Kernel kernel) { return passes(kernel, 3, 64, different); }
bool sizes(Kernel kernel) {
  bool all = true;
  for (const int n : {1, 33, 64, 100}) all = passes(kernel, 3, n, different) && all;
  return all;
}
bool large(Kernel kernel) {
  return passes(kernel, 3, 100, [](int i) { return different(i) + 10000; });
}
bool (*const kTests[])(Kernel) = {ones, one_row, three_rows, sizes, large};

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (count > 1 && !is_json) {
    const int chosen = std::atoi(arguments[1]);
    printf("%s: %s\n", kNames[chosen], sizes(kKernels[chosen]) ? "passes" : "fails");
    return 0;
  }
  if (!is_json) printf("%-34s ones   row  rows sizes large\n", "mutant");
  for (int mutant = 0; mutant < 10; ++mutant) {
    if (is_json)
      printf("%s\"%s\": [", mutant == 0 ? "{" : ", ", kNames[mutant]);
    else
      printf("%d %-32s", mutant, kNames[mutant]);
    for (int test = 0; test < 5; ++test) {
      const bool fails = !kTests[test](kKernels[mutant]);
      if (is_json)
        printf("%s%d", test == 0 ? "" : ", ", fails);
      else
        printf(" %5s", fails ? "x" : ".");
    }
    printf(is_json ? "]" : "\n");
  }
  if (is_json) printf("}\n");
}
