// A small HTTP server on loopback with scripted replies: complete, truncated, stalled, slow or wrong.
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
  std::int64_t range_begin = -1;  // 100 for "Range: bytes=100-"; -1 without a Range header
  std::int64_t range_end = -1;    // 199 for "Range: bytes=100-199"; -1 for the end of the file
  int number = 0;                 // number of the request on this server, from 0
};

struct HttpReply {
  int status = 200;
  std::string headers;  // additional headers, each terminated by \r\n
  std::string body;
  std::int64_t hang_up_after = -1;  // body bytes before the connection is closed; -1: never
  std::int64_t stall_after = -1;    // body bytes before the server stops sending; -1: never
  std::int64_t bytes_per_ms = 0;    // sending rate; 0: unlimited
};

/// Returns the reply of a correct server: the whole body, the requested range (206), or 416 if the range is
/// empty.
HttpReply serve(const HttpRequest& request, const std::string& body);

/// A server that runs its own threads.
class HttpServer {
 public:
  /// Returns the reply to a request. Called for one request at a time, on a thread of the server.
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  /// Binds a port and listens. Clients can connect, but get no reply before start().
  explicit HttpServer(Handler handler);
  /// Ends all replies and joins the threads.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Starts to accept connections.
  void start();
  /// Returns the URL of `path`, which begins with "/".
  std::string url(const std::string& path) const;
  /// Returns the requests received so far. Thread-safe.
  std::vector<HttpRequest> requests() const;
  /// Returns the number of body bytes sent so far, over all replies. Thread-safe.
  std::int64_t body_bytes() const;

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
  std::jthread acceptor_;  // declared last: joined first, so that no connection is added later
};

}  // namespace convoy::testing
