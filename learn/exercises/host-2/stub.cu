__global__ void twice(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}

// Copies chunks of `chunk` floats from `data`, which is not pinned, to x, and doubles them there. Each chunk goes through one of
// two pinned buffers, of `chunk` floats each: chunk 0 through buffers[0], chunk 1 through buffers[1], chunk 2 through buffers[0]
// again. `copies` has the copies, `kernels` has the kernels.
//
// TODO: before a buffer is filled again, its last copy must have ended. A kernel must wait for its chunk. At the end, the
// host waits for everything.
void upload(const float* data, float* x, float* const buffers[2], int chunks, int chunk, cudaStream_t copies,
            cudaStream_t kernels) {
  for (int c = 0; c < chunks; ++c) {
    float* const buffer = buffers[c % 2];
    for (int i = 0; i < chunk; ++i) buffer[i] = data[c * chunk + i];
    cudaMemcpyAsync(x + c * chunk, buffer, chunk * sizeof(float), cudaMemcpyHostToDevice, copies);
    twice<<<(chunk + 255) / 256, 256, 0, kernels>>>(x + c * chunk, chunk);
  }
  cudaDeviceSynchronize();
}
