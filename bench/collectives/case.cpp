#include "bench/collectives/case.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"

namespace convoy::bench {
namespace {

bool is_divided(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  return names;
}

std::string to_string(Collective collective) {
  return collective_names()[static_cast<std::size_t>(collective)];
}

Collective parse_collective(const std::string& name) {
  const std::vector<std::string>& names = collective_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Collective>(found - names.begin());
  fail<UsageError>("--collective: {}", unknown_name("collective", name, names));
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::all_reduce: return 2 * others;
    case Collective::reduce_scatter:
    case Collective::all_gather: return others;
    case Collective::broadcast: return 1;
  }
  return 0;
}

std::int64_t Case::in_count() const {
  return collective == Collective::reduce_scatter ? count * ranks : count;
}

std::int64_t Case::out_count() const { return collective == Collective::all_gather ? count * ranks : count; }

std::int64_t Case::bytes() const {
  return std::max(in_count(), out_count()) * static_cast<std::int64_t>(size_of(dtype));
}

Case make_case(Collective collective, DType dtype, int root, int ranks, std::int64_t bytes) {
  const std::int64_t elements = bytes / static_cast<std::int64_t>(size_of(dtype));
  return {.collective = collective,
          .dtype = dtype,
          .root = root,
          .ranks = ranks,
          .count = is_divided(collective) ? elements / ranks : elements};
}

}  // namespace convoy::bench
