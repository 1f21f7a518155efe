// y = relu(x * scale + shift + residual), with a scale and a shift per channel: the end of a residual block. x, residual and y
// have rows x channels elements.
//
// The values are right, and y goes to memory and back between the kernels. TODO: compute block_end with one launch, which
// loads each element of x and of residual once, and stores each element of y once.
__global__ void normalize(const float* x, const float* scale, const float* shift, float* y, int rows,
                          int channels) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * channels) y[i] = x[i] * scale[i % channels] + shift[i % channels];
}

__global__ void add(const float* residual, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += residual[i];
}

__global__ void relu(float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(y[i], 0);
}

void block_end(const float* x, const float* scale, const float* shift, const float* residual, float* y,
               int rows, int channels) {
  const int n = rows * channels, blocks = (n + 255) / 256;
  normalize<<<blocks, 256>>>(x, scale, shift, y, rows, channels);
  add<<<blocks, 256>>>(residual, y, n);
  relu<<<blocks, 256>>>(y, n);
}
