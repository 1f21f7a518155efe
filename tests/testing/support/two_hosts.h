// Two emulated hosts on one machine: network namespaces connected by a virtual link.
#pragma once

#include <array>
#include <string>

namespace convoy::testing {

/// Creates the namespaces in the constructor and removes them in the destructor.
class TwoHosts {
 public:
  /// Creates the namespaces. If that is not permitted, unavailable_reason() says why.
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// Returns "" or the reason why the hosts could not be created.
  const std::string& unavailable_reason() const { return unavailable_reason_; }
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
  /// Limits the rate of the link in both directions, such as to "10mbit". Returns "", or why it cannot.
  std::string limit_rate(const std::string& rate) const;

 private:
  std::array<std::string, 2> names_;
  std::string unavailable_reason_;
};

}  // namespace convoy::testing
