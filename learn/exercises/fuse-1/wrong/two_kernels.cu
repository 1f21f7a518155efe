// The addition is fused, the ReLU is another kernel.
// y = relu(x * scale + shift + residual), with a scale and a shift per channel: the end of a residual block. x, residual and y
// have rows x channels elements.
__global__ void normalize(const float* x, const float* scale, const float* shift, const float* residual,
                          float* y, int rows, int channels) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * channels) y[i] = x[i] * scale[i % channels] + shift[i % channels] + residual[i];
}

__global__ void relu(float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(y[i], 0);
}

void block_end(const float* x, const float* scale, const float* shift, const float* residual, float* y,
               int rows, int channels) {
  normalize<<<(rows * channels + 255) / 256, 256>>>(x, scale, shift, residual, y, rows, channels);
  relu<<<(rows * channels + 255) / 256, 256>>>(y, rows * channels);
}
