// sums[i] = x + y + z of point i, of n points.
//
// place(i, field, n) tells where a field of point i is stored: field 0 is x, 1 is y, 2 is z. The array has 3 n floats.
// Here the points are stored one after another, as an array of structs. All values are right; count the sectors.

// TODO: arrange the fields so that the 32 loads of a warp are neighbors.
__host__ __device__ int place(int i, int field, int n) { return 3 * i + field; }

__global__ void add_fields(const float* points, float* sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = points[place(i, 0, n)];
  const float y = points[place(i, 1, n)];
  const float z = points[place(i, 2, n)];
  sums[i] = x + y + z;
}
