// Two emulated hosts on one machine: network namespaces connected by a virtual link.
#pragma once

#include <array>
#include <string>

namespace convoy::testing {

/// Creates the namespaces in the constructor and removes them in the destructor.
class TwoHosts {
 public:
  /// Creates the namespaces, unless something is missing(). Throws std::runtime_error if that fails.
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// Returns "", or the capability that this machine lacks, in words for GTEST_SKIP(). Asks the machine, in a
  /// namespace of its own: an error in creating the hosts is no reason to skip a test.
  static const std::string& missing();
  /// Returns "", or the capability that limit_rate() needs and this machine lacks.
  static std::string missing_for_rates();
  /// Returns the name of the namespace of `host`, 0 or 1.
  const std::string& name(int host) const { return names_[static_cast<std::size_t>(host)]; }
  /// Returns the IP address of `host`.
  std::string address(int host) const { return "10.213.77." + std::to_string(host + 1); }
  static constexpr const char* kNetwork = "10.213.77.0/24";

  /// Moves this process, which must have only one thread, to `host`. Throws std::runtime_error if that fails.
  void enter(int host) const;
  /// Takes the link down: no packet passes any more.
  void disconnect() const;
  /// Takes the link up again.
  void connect() const;
  /// Limits the rate of the link in both directions, such as to "10mbit". Throws std::runtime_error if that fails.
  void limit_rate(const std::string& rate) const;

 private:
  std::array<std::string, 2> names_;
};

}  // namespace convoy::testing
