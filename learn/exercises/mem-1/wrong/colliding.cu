// sums[i] = x + y + z of point i, of n points.

// Two fields have one place.
__host__ __device__ int place(int i, int field, int n) { return i + field; }

__global__ void add_fields(const float* points, float* sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = points[place(i, 0, n)];
  const float y = points[place(i, 1, n)];
  const float z = points[place(i, 2, n)];
  sums[i] = x + y + z;
}
