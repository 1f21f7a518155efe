enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast };

double bus_bandwidth(Collective collective, int ranks, double bytes, double seconds) {
  const double algorithm_bandwidth = bytes / seconds;
  switch (collective) {
    case Collective::all_reduce: return algorithm_bandwidth * 2 * (ranks - 1) / ranks;
    case Collective::reduce_scatter:
    case Collective::all_gather: return algorithm_bandwidth * (ranks - 1) / ranks;
    case Collective::broadcast: return algorithm_bandwidth;
  }
  return 0;
}
