#include "emulator/checking/stream_order.h"

#include <algorithm>
#include <utility>

namespace convoy::emulator {
namespace {

bool is_known(const StreamClock& clock, const OrderedOperation& operation) {
  const auto found = clock.find(operation.stream);
  return found != clock.end() && found->second >= operation.number;
}

}  // namespace

void StreamOrder::join(StreamClock& to, const StreamClock& from) {
  for (const auto& [stream, number] : from) to[stream] = std::max(to[stream], number);
}

StreamOrder::Operation StreamOrder::queue(const void* stream, std::string what, Callers callers) {
  StreamClock& clock = streams_[stream];
  join(clock, host_);
  StreamClock before = clock;
  return std::make_shared<OrderedOperation>(OrderedOperation{.stream = stream,
                                                             .number = ++clock[stream],
                                                             .before = std::move(before),
                                                             .what = std::move(what),
                                                             .callers = std::move(callers)});
}

StreamClock StreamOrder::record(const void* stream) {
  join(streams_[stream], host_);
  return streams_[stream];
}

void StreamOrder::wait_on_host(const StreamClock& event) {
  join(host_, event);
  std::erase_if(completed_, [&](const Operation& operation) { return is_known(host_, *operation); });
}

void StreamOrder::wait_for_all_on_host() {
  for (const auto& [stream, clock] : std::map(streams_)) wait_on_host(clock);
}

std::optional<StreamOrder::Conflict> StreamOrder::complete(const Operation& operation) {
  std::optional<Conflict> conflict;
  for (const Operation& other : completed_) {
    if (conflict || is_known(operation->before, *other) || is_known(other->before, *operation)) continue;
    for (const auto& mine : operation->accesses)
      for (const auto& its : other->accesses) {
        if (conflict || mine.array != its.array) continue;
        const std::ptrdiff_t stored =
            std::max(mine.written.first_common(its.written), mine.read.first_common(its.written));
        const std::ptrdiff_t loaded = mine.written.first_common(its.read);
        if (stored >= 0 || loaded >= 0)
          conflict = Conflict{other, mine.array, std::max(stored, loaded), /*is_store_of_other=*/stored >= 0};
      }
  }
  if (!is_known(host_, *operation)) completed_.push_back(operation);
  return conflict;
}

std::optional<StreamOrder::Conflict> StreamOrder::host_access(const void* array, const ByteSet& bytes,
                                                              bool is_store) const {
  for (const Operation& other : completed_)
    for (const auto& its : other->accesses) {
      if (its.array != array) continue;
      if (const std::ptrdiff_t byte = bytes.first_common(its.written); byte >= 0)
        return Conflict{other, array, byte, true};
      if (const std::ptrdiff_t byte = is_store ? bytes.first_common(its.read) : -1; byte >= 0)
        return Conflict{other, array, byte, false};
    }
  return std::nullopt;
}

}  // namespace convoy::emulator
