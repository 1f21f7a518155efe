// A small HTTP server on loopback whose answers a test scripts: whole, broken off, silent, slow, wrong.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace convoy::testing {

struct HttpRequest {
  std::string path;               // "/file.bin"
  std::int64_t range_begin = -1;  // of "Range: bytes=100-"; -1 without
  int number = 0;                 // of this server, from 0
};

struct HttpReply {
  int status = 200;
  std::string headers;  // further ones, each ended by \r\n
  std::string body;
  std::int64_t hang_up_after = -1;  // bytes of the body, then the connection is closed
  std::int64_t stall_after = -1;    // bytes of the body, then nothing more comes
  std::int64_t bytes_per_ms = 0;    // 0: as fast as it goes
};

/// What a good server answers: all of the body, or what the Range asks for (206), or 416 where that is
/// nothing.
HttpReply serve(const HttpRequest& request, const std::string& body);

class HttpServer {
 public:
  /// Called for one request at a time.
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  /// Listens from now on; clients wait until start().
  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  std::string url(const std::string& path) const;
  std::vector<HttpRequest> requests() const;
  std::int64_t body_bytes() const;  // sent, over all replies

 private:
  void accept_all();
  void answer(int connection);
  void send_body(int connection, const HttpReply& reply);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::vector<HttpRequest> requests_;
  std::int64_t body_bytes_ = 0;
  std::vector<std::jthread> connections_;
  std::jthread acceptor_;  // last: ends first, so that no connection is added later
};

}  // namespace convoy::testing
