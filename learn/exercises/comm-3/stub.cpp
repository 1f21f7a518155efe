enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast };

// Returns the bandwidth of the links (bytes per second), if a perfect implementation of the collective took `seconds`. `bytes` is
// the size of the whole array: what all ranks have after an all_gather or a broadcast, or before a reduce_scatter. All ranks
// send and receive at the same time, so the slowest link decides.
double bus_bandwidth(Collective collective, int ranks, double bytes, double seconds) {
  // TODO
  return 0;
}
