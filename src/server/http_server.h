// cpp-httplib's server with limits: on connections, on the size of headers and bodies, on time.
#pragma once

#include <httplib.h>

#include <atomic>
#include <functional>
#include <string>

#include "server/connection.h"

namespace winnow::server {

class HttpServer : public httplib::Server {
 public:
  HttpServer(const ConnectionLimits& limits, int max_connections);
  ~HttpServer() override;

  // Port 0: any free one. Returns the port. Throws Error(kIo) that says why.
  int bind(const std::string& host, int port);
  // Serves until stop_serving(), which may come at any time, also before. Returns once the connections have ended, each
  // after the request that it is at.
  void serve();
  void stop_serving();

  // Called with every request's headers before its body is read. Where it returns true, the body is left unread, and
  // the client is told that the connection ends with the answer: what is left of the body must not pass for a next
  // request.
  using BeforeBody = std::function<bool(httplib::Request&)>;
  void set_before_body(BeforeBody before_body) { before_body_ = std::move(before_body); }

  // The connection whose request is handled on this thread; null elsewhere.
  static Connection* current();

  // One request from a stream to its answer; for tests and fuzzing. False: the connection is to be closed.
  bool process(httplib::Stream& stream, bool is_last);

 private:
  bool process_and_close_socket(socket_t socket) override;

  const ConnectionLimits limits_;
  const int max_connections_;
  BeforeBody before_body_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace winnow::server
