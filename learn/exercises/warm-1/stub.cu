// z[i] = a x[i] + y[i] for i = 0 to n - 1: one thread per element.
//
// The launch has blocks of 256 threads, and as many blocks as n elements need. Thread threadIdx.x of block blockIdx.x
// has 256 blockIdx.x threads before it; blockDim.x is the number of threads of a block.
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  // TODO: compute the index i of this thread's element, and z[i] if there is an element i.
}
