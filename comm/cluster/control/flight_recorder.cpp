#include "convoy/comm/cluster/control/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

namespace convoy::dist {

void FlightEvent::set_text(std::string_view value) {
  value = value.substr(0, text.size() - 1);
  text = {};
  std::copy(value.begin(), value.end(), text.begin());
}

void FlightRing::add(const FlightEvent& event) noexcept {
  const std::uint64_t number = count_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[number % kEvents];
  const auto words = std::bit_cast<std::array<std::uint64_t, kWords>>(event);
  entry.version.store(0);
  for (std::size_t i = 0; i < kWords; ++i) entry.words[i].store(words[i], std::memory_order_release);
  entry.version.store(number + 1);
}

std::vector<FlightEvent> FlightRing::events() const {
  const std::uint64_t end = count_.load();
  std::vector<FlightEvent> events;
  for (std::uint64_t number = end > kEvents ? end - kEvents : 0; number < end; ++number) {
    const Entry& entry = entries_[number % kEvents];
    if (entry.version.load() != number + 1) continue;  // incomplete, or already replaced
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_acquire);
    if (entry.version.load() == number + 1) events.push_back(std::bit_cast<FlightEvent>(words));
  }
  return events;
}

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace convoy::dist
