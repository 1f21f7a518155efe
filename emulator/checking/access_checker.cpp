#include "emulator/checking/access_checker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

#include "emulator/counting/formatted.h"

namespace convoy::emulator {
namespace {

std::string index_text(dim3 size, uint3 index) {
  if (size.y == 1 && size.z == 1) return std::to_string(index.x);
  if (size.z == 1) return formatted("({}, {})", index.x, index.y);
  return formatted("({}, {}, {})", index.x, index.y, index.z);
}

std::string thread_in_block(unsigned linear) {
  return "thread " + index_text(blockDim, {linear % blockDim.x, linear / blockDim.x % blockDim.y,
                                           linear / blockDim.x / blockDim.y});
}

std::string running_thread_text() {
  return thread_in_block(running_thread()) + " of block " + index_text(gridDim, blockIdx);
}

const char* verb(AccessKind kind) {
  return kind == AccessKind::load ? "reads" : kind == AccessKind::store ? "writes" : "atomically changes";
}

/// Returns "tile[3][5]" for an offset in bytes.
std::string element_text(const Declaration& declaration, std::ptrdiff_t offset, std::size_t access_bytes) {
  const auto bytes =
      static_cast<std::ptrdiff_t>(declaration.element_bytes > 0 ? declaration.element_bytes : access_bytes);
  const std::string name = declaration.name.empty() ? "the array" : declaration.name;
  std::ptrdiff_t index = offset / bytes;
  std::string result;
  const auto& extents = declaration.extents;
  for (std::size_t i = extents.size(); i-- > 1;) {
    const auto extent = static_cast<std::ptrdiff_t>(extents[i]);
    result = formatted("[{}]", index % extent) + result;
    index /= extent;
  }
  if (extents.empty() && declaration.element_bytes > 0) return name;  // not an array
  return name + formatted("[{}]", index) + result;
}

/// A line of /proc/self/maps.
struct Mapping {
  AccessCounter::Range range;
  bool is_writable;
};

std::optional<Mapping> mapping_of(const char* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions;
    words >> std::hex >> begin >> dash >> end >> permissions;
    const AccessCounter::Range range{reinterpret_cast<const char*>(begin), end - begin};
    if (range.contains(address) && permissions[0] == 'r')
      return Mapping{.range = range, .is_writable = permissions[1] == 'w'};
  }
  return std::nullopt;
}

}  // namespace

AccessChecker* AccessChecker::current_ = nullptr;
thread_local bool AccessChecker::is_in_kernel_ = false;
void (*AccessChecker::stop_kernel)(const std::string& message) = nullptr;

void AccessChecker::enable() {
  if (current_ == nullptr) current_ = new AccessChecker;  // never destroyed, as the driver
}

void* AccessChecker::allocate(std::size_t bytes, bool is_on_host) {
  void* const begin = (is_on_host ? host_ : device_).allocate(bytes);
  if (begin == nullptr) return nullptr;
  Array& array = arrays_[static_cast<const char*>(begin)] = {.bytes = bytes, .is_on_host = is_on_host};
  // The host may write to its memory by functions that are not compiled for checking.
  if (is_on_host) fill_all(array);
  return begin;
}

void AccessChecker::release(void* begin) {
  Array& array = arrays_[static_cast<const char*>(begin)];
  array.is_freed = true;
  array.initialized = {};
  (array.is_on_host ? host_ : device_).release(begin, array.bytes);
}

void AccessChecker::add(const void* begin, std::size_t bytes, const Declaration& declaration) {
  Array& array = arrays_[static_cast<const char*>(begin)];
  array = {.bytes = bytes, .declaration = declaration};
  fill_all(array);
}

void AccessChecker::fill_all(Array& array) {
  array.initialized.reserve(array.bytes);
  array.initialized.add(0, array.bytes);
}

AccessChecker::Position AccessChecker::array_before(const char* address) {
  if (last_ != arrays_.end() && range_of(last_).contains(address)) return last_;
  const auto next = arrays_.upper_bound(address);
  if (next != arrays_.begin()) last_ = std::prev(next);
  return next == arrays_.begin() ? arrays_.end() : std::prev(next);
}

std::string AccessChecker::element(Position at, const char* begin, std::size_t bytes) const {
  return element_text(at->second.declaration, begin - at->first, bytes);
}

void AccessChecker::stop(Finding finding) {
  const std::string message = (finding.place.empty() ? "" : finding.place + ": ") + finding.message;
  Findings::get().add(std::move(finding));
  if (is_in_kernel_) stop_kernel(message);
  std::fflush(nullptr);
  _exit(1);
}

std::string AccessChecker::thread_text(unsigned number) const {
  const unsigned rank = number / races_.stride();
  const std::string of_block = rank == running_rank ? "" : " of block " + index_text(gridDim, blocks_[rank]);
  return thread_in_block(number % races_.stride()) + of_block;
}

void AccessChecker::begin_launch(AccessCounter::Range shared, AccessCounter::Range slots,
                                 std::size_t slot_bytes) {
  shared_ = shared;
  slots_ = slots;
  slot_bytes_ = slot_bytes;
  parts_.clear();
}

void AccessChecker::declare_shared(AccessCounter::Range part, Declaration declaration) {
  parts_.push_back({part, std::move(declaration)});
}

void AccessChecker::begin_block(unsigned threads, std::vector<uint3> blocks) {
  is_in_kernel_ = true;
  blocks_ = std::move(blocks);
  remote_.assign(blocks_.size(), {});
  shared_initialized_.resize(blocks_.size());
  for (ByteSet& initialized : shared_initialized_) {
    initialized.reserve(shared_.bytes);
    initialized.clear();
  }
  races_.begin_block(threads, static_cast<unsigned>(blocks_.size()));
}

void AccessChecker::end_block() {
  check_pending();
  is_in_kernel_ = false;
  for (unsigned rank = 0; rank < remote_.size(); ++rank)
    if (remote_[rank].site != nullptr && races_.waited_of_block(rank) <= remote_[rank].arrived)
      Findings::get().add(
          {"CE107", place_of(remote_[rank].site),
           remote_[rank].what + ", which may have ended; it waits at no barrier of the cluster after that"});
  remote_.clear();
}

void AccessChecker::check_aligned(const void* address, std::size_t bytes, AccessKind kind, const void* site) {
  if (!is_in_kernel_ || reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
  stop({"CE003", place_of(site),
        formatted("{} {} {} bytes at an address that is not a multiple of {}", running_thread_text(),
                  verb(kind), bytes, bytes)});
}

void AccessChecker::access(const void* address, std::size_t bytes, AccessKind kind, const void* site) {
  const auto* const begin = static_cast<const char*>(address);
  if (!is_in_kernel_) {
    const bool is_in_array = device_.contains(begin) || host_.contains(begin);
    if (is_in_array && std::this_thread::get_id() == thread_) access_on_host(begin, bytes, kind, site);
    return;
  }
  if (stack_.contains(begin)) return;  // a local variable
  check_pending();
  if (shared_.contains(begin) || slots_.contains(begin)) return access_shared(begin, bytes, kind, site);
  const Position at = array_before(begin);
  if (at != arrays_.end() && range_of(at).contains(begin)) return access_array(at, begin, bytes, kind, site);
  access_other(begin, bytes, kind, site);
}

void AccessChecker::access_shared(const char* begin, std::size_t bytes, AccessKind kind, const void* site) {
  const bool is_own = shared_.contains(begin);
  const auto in_slots = static_cast<std::size_t>(is_own ? 0 : begin - slots_.begin);
  const unsigned rank = is_own ? running_rank : static_cast<unsigned>(in_slots / slot_bytes_);
  const auto offset = is_own ? static_cast<std::size_t>(begin - shared_.begin) : in_slots % slot_bytes_;
  const char* const at = shared_.begin + offset;  // the address in its own block
  // The part that begins last before the address; shared memory between parts belongs to none.
  const SharedPart* part = nullptr;
  for (const SharedPart& each : parts_)
    if (each.range.begin <= at && (part == nullptr || each.range.begin >= part->range.begin)) part = &each;
  static const Declaration& unnamed = *new Declaration{.name = "shared memory"};
  const AccessCounter::Range all = part != nullptr ? part->range : shared_;
  const Declaration& declaration = part != nullptr ? part->declaration : unnamed;
  const auto element = [&] {
    return element_text(declaration, at - all.begin, bytes) +
           (rank == running_rank ? "" : " of block " + index_text(gridDim, blocks_[rank]));
  };
  if (at + bytes > all.begin + all.bytes)
    stop({"CE003", place_of(site),
          formatted("{} {} {}; {} has {} bytes of shared memory", running_thread_text(), verb(kind),
                    element(), declaration.name, all.bytes)});
  if (rank != running_rank) check_remote(rank, kind, site, element());
  ByteSet& initialized = shared_initialized_[rank];
  if (kind != AccessKind::store && !initialized.has_all(offset, bytes))
    Findings::get().add({"CE002", place_of(site),
                         formatted("{} reads {}, which no thread of the block has written",
                                   running_thread_text(), element())});
  initialized.add(offset, bytes);
  check_race(begin, bytes, kind, site, element, static_cast<std::ptrdiff_t>(rank * slot_bytes_ + offset));
}

/// Checks an access of another block's shared memory: that block has begun, and does not end before.
void AccessChecker::check_remote(unsigned rank, AccessKind kind, const void* site,
                                 const std::string& element) {
  const std::string what = formatted("{} {} {}", running_thread_text(), verb(kind), element);
  if (races_.waited(number()) == 0)
    Findings::get().add({"CE108", place_of(site),
                         what + ", which may not have begun; no barrier of the cluster is before that"});
  RemoteAccess& last = remote_[rank];
  if (last.site == nullptr || races_.arrived(number()) > last.arrived)
    last = {.arrived = races_.arrived(number()), .site = site, .what = what};
}

void AccessChecker::access_array(Position at, const char* begin, std::size_t bytes, AccessKind kind,
                                 const void* site) {
  Array& array = at->second;
  if (array.is_freed)
    stop({"CE003", place_of(site),
          formatted("{} {} {}, whose memory was freed", running_thread_text(), verb(kind),
                    element(at, begin, bytes))});
  const auto offset = static_cast<std::size_t>(begin - at->first);
  if (offset + bytes > array.bytes) return access_other(begin, bytes, kind, site);
  array.initialized.reserve(array.bytes);
  if (kind != AccessKind::store && !array.initialized.has_all(offset, bytes))
    Findings::get().add({"CE002", place_of(site),
                         formatted("{} reads {}, which neither a kernel nor a copy has written",
                                   running_thread_text(), element(at, begin, bytes))});
  array.initialized.add(offset, bytes);
  check_race(begin, bytes, kind, site, [&] { return element(at, begin, bytes); });
}

/// An access to memory that is no array's.
void AccessChecker::access_other(const char* begin, std::size_t bytes, AccessKind kind, const void* site) {
  const AccessCounter::Range built_in[] = {{reinterpret_cast<const char*>(&threadIdx), sizeof(threadIdx)},
                                           {reinterpret_cast<const char*>(&blockIdx), sizeof(blockIdx)},
                                           {reinterpret_cast<const char*>(&blockDim), sizeof(blockDim)},
                                           {reinterpret_cast<const char*>(&gridDim), sizeof(gridDim)}};
  const auto is_in = [&](const AccessCounter::Range& range) { return range.contains(begin); };
  if (std::any_of(std::begin(built_in), std::end(built_in), is_in)) return;
  if (kind == AccessKind::load && std::any_of(constants_.begin(), constants_.end(), is_in)) return;
  // Near an array?
  constexpr auto kNear = static_cast<std::ptrdiff_t>(Arena::kGap / 2);
  Position at = array_before(begin);
  const auto next = at == arrays_.end() ? arrays_.begin() : std::next(at);
  if (next != arrays_.end() && next->first - begin < kNear &&
      (at == arrays_.end() || next->first - begin < begin - at->first))
    at = next;
  if (at != arrays_.end() && begin - at->first < static_cast<std::ptrdiff_t>(at->second.bytes) + kNear &&
      at->first - begin < kNear) {
    const std::size_t unit =
        at->second.declaration.element_bytes > 0 ? at->second.declaration.element_bytes : bytes;
    stop({"CE003", place_of(site),
          formatted("{} {} {}; {} has {} elements of {} bytes", running_thread_text(), verb(kind),
                    element(at, begin, bytes),
                    at->second.declaration.name.empty() ? "the array" : at->second.declaration.name,
                    at->second.bytes / unit, unit)});
  }
  const std::optional<Mapping> mapping = mapping_of(begin);
  if (!mapping)
    stop({"CE004", place_of(site),
          formatted("{} {} address {}, which is {}", running_thread_text(), verb(kind),
                    hexadecimal(reinterpret_cast<std::uintptr_t>(begin)),
                    reinterpret_cast<std::uintptr_t>(begin) < 4096 ? "a null pointer"
                                                                   : "no memory of the program")});
  if (!mapping->is_writable && kind == AccessKind::load) {
    constants_.push_back(mapping->range);
    return;
  }
  stop({"CE004", place_of(site),
        formatted("{} {} host memory, which a GPU cannot access; expected a pointer from cudaMalloc",
                  running_thread_text(), verb(kind))});
}

void AccessChecker::check_race(const char* begin, std::size_t bytes, AccessKind kind, const void* site,
                               const std::function<std::string()>& element, std::ptrdiff_t shared_place) {
  constexpr std::uintptr_t kShared = std::uintptr_t{1} << 60;  // no address of memory
  const bool is_shared = shared_place >= 0;
  const std::uintptr_t place = is_shared ? kShared + static_cast<std::uintptr_t>(shared_place)
                                         : reinterpret_cast<std::uintptr_t>(begin);
  const std::optional<Race> race = races_.access(number(), place, bytes, kind, site, is_shared);
  if (!race) return;
  const std::string earlier = place_of(race->first_site);
  const bool is_of_block = race->first_thread / races_.stride() == running_rank;
  Finding finding{is_of_block ? "CE101" : "CE108", place_of(site),
                  formatted("{} {} {}, which {} {}{}; no {} is between them", running_thread_text(),
                            verb(kind), element(), thread_text(race->first_thread), verb(race->first_kind),
                            earlier.empty() ? "" : " at " + earlier,
                            is_of_block ? "__syncthreads()" : "barrier of the cluster")};
  if (race->first_kind == AccessKind::store && kind == AccessKind::store)
    pending_ = PendingRace{begin, std::vector<char>(begin, begin + bytes), std::move(finding)};
  else
    Findings::get().add(std::move(finding));
}

void AccessChecker::check_pending() {
  if (!pending_) return;
  if (std::memcmp(pending_->begin, pending_->before.data(), pending_->before.size()) != 0)
    Findings::get().add(std::move(pending_->finding));
  pending_.reset();
}

void AccessChecker::access_on_host(const char* begin, std::size_t bytes, AccessKind kind, const void* site) {
  const Position at = array_before(begin);
  if (at == arrays_.end()) return;
  const Array& array = at->second;
  if (!array.is_on_host)
    stop({"CE005", place_of(site),
          formatted("the host {} {}, which is in the GPU's memory; expected a copy by cudaMemcpy", verb(kind),
                    element(at, begin, bytes))});
  const auto offset = static_cast<std::size_t>(begin - at->first);
  if (array.is_freed || offset + bytes > array.bytes)
    stop({"CE003", place_of(site),
          formatted(
              "the host {} {}, {}", verb(kind), element(at, begin, bytes),
              array.is_freed ? "whose memory was freed" : formatted("which has {} bytes", array.bytes))});
  ByteSet accessed;
  accessed.reserve(offset + bytes);
  accessed.add(offset, bytes);
  if (const auto conflict = order.host_access(at->first, accessed, kind != AccessKind::load))
    Findings::get().add(
        {"CE106", place_of(site),
         formatted("the host {} {}, which the {} of {} {}; the host has not waited for it", verb(kind),
                   element(at, begin, bytes), conflict->other->what, place_of(conflict->other->callers),
                   conflict->is_store_of_other ? "writes" : "reads")});
}

bool AccessChecker::fault_on_host(const void* address) {
  if (is_in_kernel_ || !device_.contains(address)) return false;
  const auto* const begin = static_cast<const char*>(address);
  const Position at = array_before(begin);
  stop({"CE005", place_of(callers()),
        formatted("the host accesses {}, which is in the GPU's memory; expected a copy by cudaMemcpy",
                  at == arrays_.end() || at->second.declaration.name.empty() ? "an array"
                                                                             : at->second.declaration.name)});
}

AccessChecker::Accesses AccessChecker::copy(void* to, const void* from, std::size_t bytes,
                                            const StreamOrder::Operation& operation) {
  Accesses result;
  const auto part_of = [&](const void* pointer) {
    const Position at = array_before(static_cast<const char*>(pointer));
    const bool is_inside = at != arrays_.end() && range_of(at).contains(static_cast<const char*>(pointer));
    return is_inside ? at : arrays_.end();
  };
  const Position source = part_of(from), target = part_of(to);
  bool is_initialized = true;
  if (source != arrays_.end()) {
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(from) - source->first);
    result.push_back({.array = source->first, .read = {}, .written = {}});
    result.back().read.reserve(offset + bytes);
    result.back().read.add(offset, bytes);
    is_initialized = source->second.initialized.has_all(offset, bytes);
    if (!is_initialized) {
      std::size_t first = 0;
      while (source->second.initialized.has_all(offset + first, 1)) ++first;
      const std::size_t unit = source->second.declaration.element_bytes;
      Findings::get().add(
          {"CE002", operation == nullptr ? "" : place_of(operation->callers),
           formatted("a copy reads {}{}, which neither a kernel nor a copy has written",
                     unit == 0 ? formatted("byte {} of ", offset + first) : "",
                     unit == 0 ? (source->second.declaration.name.empty() ? "an array"
                                                                          : source->second.declaration.name)
                               : element(source, source->first + offset + first, 1))});
    }
  }
  if (target != arrays_.end()) {
    const auto offset = static_cast<std::size_t>(static_cast<char*>(to) - target->first);
    result.push_back({.array = target->first, .read = {}, .written = {}});
    result.back().written.reserve(offset + bytes);
    result.back().written.add(offset, bytes);
    target->second.initialized.reserve(target->second.bytes);
    target->second.initialized.add(offset, bytes);
  }
  return result;
}

AccessChecker::Accesses AccessChecker::accesses_of(const AccessCounter& counter) const {
  Accesses result;
  for (const AccessCounter::Array& array : counter.arrays())
    if (!array.read.is_empty() || !array.written.is_empty())
      result.push_back({.array = array.range.begin, .read = array.read, .written = array.written});
  return result;
}

void AccessChecker::compute() {
  for (auto& [begin, array] : arrays_) fill_all(array);
}

void AccessChecker::complete(const StreamOrder::Operation& operation, Accesses accesses) {
  operation->accesses = std::move(accesses);
  const auto conflict = order.complete(operation);
  if (!conflict) return;
  const Position at = array_before(static_cast<const char*>(conflict->array));
  Findings::get().add(
      {"CE106", place_of(operation->callers),
       formatted("the {} accesses {}, which the {} of {} {} on another stream; no event orders the two",
                 operation->what, element(at, at->first + conflict->byte, 1), conflict->other->what,
                 place_of(conflict->other->callers), conflict->is_store_of_other ? "writes" : "reads")});
}

}  // namespace convoy::emulator
