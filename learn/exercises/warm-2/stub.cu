// y[i] += a x[i] for i = 0 to n - 1, by a grid that may have fewer threads than there are elements.
//
// The launch has gridDim.x blocks of blockDim.x threads. If each thread begins with the element of its own index and
// goes on in steps of the number of all threads, every element has exactly one thread, and neighbors stay neighbors.
__global__ void add_scaled(int n, float a, const float* x, float* y) {
  // TODO: a loop over the elements of this thread.
}
