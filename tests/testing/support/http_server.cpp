#include "tests/testing/support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace convoy::testing {
namespace {

bool send_all(int connection, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(connection, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

std::string read_head(int connection) {
  std::string head;
  char byte = 0;
  while (!head.ends_with("\r\n\r\n") && ::recv(connection, &byte, 1, 0) == 1) head += byte;
  return head;
}

HttpRequest parse(const std::string& head) {
  HttpRequest request;
  const std::size_t begin = head.find(' ') + 1;
  request.path = head.substr(begin, head.find(' ', begin) - begin);
  constexpr const char* kRange = "Range: bytes=";
  if (const std::size_t range = head.find(kRange); range != std::string::npos) {
    const std::string text = head.substr(range + std::string(kRange).size());
    request.range_begin = std::stoll(text);
    if (const std::size_t dash = text.find('-'); text[dash + 1] != '\r')
      request.range_end = std::stoll(text.substr(dash + 1));
  }
  return request;
}

}  // namespace

HttpReply serve(const HttpRequest& request, const std::string& body) {
  if (request.range_begin < 0) return {.body = body};
  const auto begin = static_cast<std::size_t>(request.range_begin);
  if (begin >= body.size()) return {.status = 416};
  const std::size_t last = request.range_end < 0
                               ? body.size() - 1
                               : std::min(body.size() - 1, static_cast<std::size_t>(request.range_end));
  return {.status = 206,
          .headers = "Content-Range: bytes " + std::to_string(begin) + "-" + std::to_string(last) + "/" +
                     std::to_string(body.size()) + "\r\n",
          .body = body.substr(begin, last - begin + 1)};
}

HttpServer::HttpServer(Handler handler)
    : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, generic, &size) != 0)
    throw std::runtime_error("cannot listen on loopback");
  port_ = ntohs(address.sin_port);
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);  // ends accept()
  if (acceptor_.joinable()) acceptor_.join();
  connections_.clear();  // joins
  ::close(listener_);
}

void HttpServer::start() {
  acceptor_ = std::jthread([this] { accept_all(); });
}

std::string HttpServer::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

std::vector<HttpRequest> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::int64_t HttpServer::body_bytes() const {
  const std::lock_guard lock(mutex_);
  return body_bytes_;
}

void HttpServer::accept_all() {
  while (true) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    connections_.emplace_back([this, connection] {
      answer(connection);
      ::close(connection);
    });
  }
}

void HttpServer::answer(int connection) {
  HttpRequest request = parse(read_head(connection));
  HttpReply reply;
  {
    const std::lock_guard lock(mutex_);
    request.number = static_cast<int>(requests_.size());
    requests_.push_back(request);
    reply = handler_(request);
  }
  const std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Scripted\r\n" + reply.headers +
                           "Content-Length: " + std::to_string(reply.body.size()) +
                           "\r\nConnection: close\r\n\r\n";
  if (send_all(connection, head.data(), head.size())) send_body(connection, reply);
}

void HttpServer::send_body(int connection, const HttpReply& reply) {
  const auto limit = [&](std::int64_t bytes) {
    return bytes < 0 ? reply.body.size() : std::min(reply.body.size(), static_cast<std::size_t>(bytes));
  };
  const std::size_t end = std::min(limit(reply.hang_up_after), limit(reply.stall_after));
  constexpr std::size_t kPace = 10;  // ms between the pieces of a slow reply
  const std::size_t piece =
      reply.bytes_per_ms > 0 ? static_cast<std::size_t>(reply.bytes_per_ms) * kPace : 65536;
  for (std::size_t begin = 0; begin < end; begin += piece) {
    const std::size_t count = std::min(piece, end - begin);
    {
      const std::lock_guard lock(
          mutex_);  // counted before sending: a client may ask as soon as it has the bytes
      body_bytes_ += static_cast<std::int64_t>(count);
    }
    if (!send_all(connection, reply.body.data() + begin, count)) return;
    std::unique_lock lock(mutex_);
    if (reply.bytes_per_ms > 0)
      stopped_.wait_for(lock, std::chrono::milliseconds(kPace), [&] { return stopping_; });
    if (stopping_) return;
  }
  if (reply.stall_after < 0) return;
  std::unique_lock lock(mutex_);
  stopped_.wait(lock, [&] { return stopping_; });
}

}  // namespace convoy::testing
