#include "emulator/counting/access_counter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace convoy::emulator {
namespace {

std::uint64_t number(const char* address) { return reinterpret_cast<std::uint64_t>(address); }

}  // namespace

AccessCounter* AccessCounter::current_ = nullptr;
bool AccessCounter::is_available = false;

AccessCounter::AccessCounter(const void* kernel, dim3 grid, dim3 block, Range shared, Range of_others,
                             std::vector<Range> arrays)
    : counts_{.kernel = kernel, .grid = grid, .block = block, .shared_bytes = shared.bytes},
      shared_(shared),
      of_others_(of_others) {
  for (const Range& range : arrays) arrays_.push_back({.range = range});
  current_ = this;
}

AccessCounter::Array* AccessCounter::array_of(const char* address) {
  if (last_array_ != nullptr && last_array_->range.contains(address)) return last_array_;
  const auto next = std::upper_bound(arrays_.begin(), arrays_.end(), address,
                                     [](const char* a, const Array& array) { return a < array.range.begin; });
  if (next == arrays_.begin() || !std::prev(next)->range.contains(address)) return nullptr;
  return last_array_ = &*std::prev(next);
}

AccessCounter::Site& AccessCounter::site_of(const void* address, bool is_store, bool is_shared,
                                            std::size_t bytes, Pipe pipe) {
  // Code addresses have at most 48 bits.
  const std::uint64_t key = reinterpret_cast<std::uint64_t>(address) << 8 |
                            static_cast<std::uint64_t>(pipe) << 7 | bytes << 2 |
                            static_cast<std::uint64_t>(is_store) << 1 | static_cast<std::uint64_t>(is_shared);
  const auto [found, is_new] = site_index_.try_emplace(key, sites_.size());
  if (is_new)
    sites_.push_back(
        {.address = address, .is_store = is_store, .is_shared = is_shared, .pipe = pipe, .bytes = bytes});
  return sites_[found->second];
}

void AccessCounter::access(const void* address, std::size_t bytes, bool is_store, const void* site,
                           Pipe pipe) {
  const auto* const begin = static_cast<const char*>(address);
  const bool is_shared = this->is_shared(begin);
  if (!is_shared) {
    Array* const array = array_of(begin);
    if (array == nullptr) return;  // a local variable, or a parameter
    array->add(is_store ? array->written : array->read, begin, bytes);
    check_order(*array, begin, bytes, is_store, site);
  }
  const unsigned thread = running_thread();
  Site& at = site_of(site, is_store, is_shared, bytes, pipe);
  const unsigned warps = (blockDim.x * blockDim.y * blockDim.z + kLanes - 1) / kLanes;
  const unsigned number = running_rank * warps + thread / kLanes;  // in the cluster
  if (at.warps.size() <= number) at.warps.resize(number + 1);
  WarpAccesses& warp = at.warps[number];
  const std::uint32_t execution = warp.executions[thread % kLanes]++;
  if (warp.requests.size() <= execution) warp.requests.emplace_back();
  warp.requests[execution][thread % kLanes] = begin;
}

void AccessCounter::check_order(Array& array, const char* begin, std::size_t bytes, bool is_store,
                                const void* site) {
  if (!is_store && array.stores.empty()) return;
  if (array.stores.empty()) array.stores.resize(array.range.bytes);
  const auto first = static_cast<std::size_t>(begin - array.range.begin);
  const auto last = std::min(first + bytes, array.stores.size());
  const BlockOrder::Tag tag = is_store ? order_.store(running_thread()) : 0;
  for (std::size_t byte = first; byte < last; ++byte) {
    if (is_store)
      array.stores[byte] = tag;
    else if (counts_.unordered_load == nullptr && !order_.is_ordered(running_thread(), array.stores[byte]))
      counts_.unordered_load = site;
  }
}

void AccessCounter::fence() { order_.fence(running_thread()); }

void AccessCounter::barrier() {
  ++counts_.barriers;
  order_.barrier();
}

void AccessCounter::atomic(const void* address, std::size_t bytes, const void* site) {
  const auto* const begin = static_cast<const char*>(address);
  const bool is_shared = this->is_shared(begin);
  if (!is_shared) order_.atomic(running_thread());
  ++site_of(site, /*is_store=*/true, is_shared, bytes, Pipe::load_store).accesses.atomics;
  Array* const array = is_shared ? nullptr : array_of(begin);
  if (array == nullptr) return;
  for (ByteSet* const set : {&array->read, &array->written}) array->add(*set, begin, bytes);
}

void AccessCounter::count_global(const Site& site, const Request& request, GlobalAccesses& counts) {
  std::array<std::uint64_t, kLanes> begins;
  unsigned lanes = 0;
  for (const char* address : request)
    if (address != nullptr) begins[lanes++] = number(address);
  if (!std::is_sorted(begins.begin(), begins.begin() + lanes))
    std::sort(begins.begin(), begins.begin() + lanes);
  std::uint64_t next_byte = 0, next_sector = 0;  // after those that have been counted
  for (unsigned i = 0; i < lanes; ++i) {
    const std::uint64_t end = begins[i] + site.bytes, end_sector = (end - 1) / kSectorBytes + 1;
    if (end > next_byte) counts.bytes += end - std::max(begins[i], next_byte);
    if (end_sector > next_sector)
      counts.sectors += end_sector - std::max(begins[i] / kSectorBytes, next_sector);
    next_byte = std::max(next_byte, end);
    next_sector = std::max(next_sector, end_sector);
  }
  ++counts.requests;
  counts.lanes += lanes;
}

/// Words of 8 bytes are accessed by half a warp at a time, and words of 16 bytes by a quarter.
void AccessCounter::count_shared(const Site& site, const Request& request, SharedAccesses& counts) {
  constexpr unsigned kBanks = 32, kBankBytes = 4;
  const unsigned group = kLanes / std::max(1u, static_cast<unsigned>(site.bytes) / kBankBytes);
  for (unsigned first = 0; first < kLanes; first += group) {
    std::vector<std::uint64_t> words;
    for (unsigned lane = first; lane < first + group; ++lane) {
      if (request[lane] == nullptr) continue;
      ++counts.lanes;
      const std::uint64_t begin = number(request[lane]), end = begin + site.bytes;
      for (std::uint64_t word = begin / kBankBytes; word * kBankBytes < end; ++word) words.push_back(word);
    }
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<unsigned, kBanks> in_bank{};
    for (const std::uint64_t word : words) ++in_bank[word % kBanks];
    counts.wavefronts += *std::max_element(in_bank.begin(), in_bank.end());
    counts.minimum += (words.size() + kBanks - 1) / kBanks;
  }
  ++counts.requests;
}

void AccessCounter::end_block() {
  order_.begin_cluster();
  for (Site& site : sites_) {
    Accesses& to = site.accesses;
    for (WarpAccesses& warp : site.warps) {
      for (const Request& request : warp.requests) {
        if (site.is_shared)
          count_shared(site, request,
                       site.pipe == Pipe::tensor_core ? to.tensor_loads
                       : site.is_store                ? to.shared_stores
                                                      : to.shared_loads);
        else
          count_global(site, request, site.is_store ? to.stores : to.loads);
      }
      warp.requests.clear();
      warp.executions.fill(0);
    }
  }
}

LaunchCounts AccessCounter::take() {
  for (const Site& site : sites_) {
    counts_.accesses += site.accesses;
    counts_.sites.push_back({.site = site.address, .accesses = site.accesses});
  }
  for (const Array& array : arrays_) {
    const ArrayCounts counts{.array_bytes = array.range.bytes,
                             .bytes_read = array.read.count(),
                             .bytes_written = array.written.count()};
    if (counts.bytes_read == 0 && counts.bytes_written == 0) continue;
    counts_.bytes_read += counts.bytes_read;
    counts_.bytes_written += counts.bytes_written;
    counts_.arrays.push_back(counts);
  }
  return std::move(counts_);
}

}  // namespace convoy::emulator
