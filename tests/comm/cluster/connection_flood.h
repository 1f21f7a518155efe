// Strangers that connect to a port all the time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/cluster/net/socket.h"

namespace convoy::testing {

/// Threads that connect to a port of this host without a pause until the object is destroyed. Half of them send
/// garbage, the others nothing.
class ConnectionFlood {
 public:
  explicit ConnectionFlood(int port) {
    for (int i = 0; i < 4; ++i)
      threads_.emplace_back([=](const std::stop_token& stop) {
        const std::string garbage = i % 2 == 0 ? "" : std::string(300, 'x');
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const linger reset{.l_onoff = 1, .l_linger = 0};       // leaves no connection in TIME_WAIT
        const timeval limit{.tv_sec = 0, .tv_usec = 200'000};  // of connect(), if the port no longer accepts
        while (!stop.stop_requested()) {
          const dist::Socket client(socket(AF_INET, SOCK_STREAM, 0));
          setsockopt(client.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
          setsockopt(client.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
          if (connect(client.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
            continue;
          [[maybe_unused]] const auto sent =
              send(client.descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the flood is there
  }

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace convoy::testing
