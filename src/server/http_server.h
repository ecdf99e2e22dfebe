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

  // Binds to an address and returns the port (0: any free one). Throws Error(kIo) with the reason.
  int bind(const std::string& host, int port);
  // Serves until stop_serving(), which may be called at any time, also before. Returns once all connections have ended,
  // each after its present request.
  void serve();
  void stop_serving();

  // Called with every request's headers before its body is read. If it returns true, the body is left unread, and the
  // answer's headers say that the connection is closed, since the rest of the body must not pass for another request.
  using BeforeBody = std::function<bool(httplib::Request&)>;
  void set_before_body(BeforeBody before_body) { before_body_ = std::move(before_body); }

  // Returns the connection whose request is handled on this thread; null elsewhere.
  static Connection* current();

  // Reads one request from a stream and answers it; for tests and fuzzing. Returns false if the connection must be
  // closed.
  bool process(httplib::Stream& stream, bool is_last);

 private:
  bool process_and_close_socket(socket_t socket) override;

  const ConnectionLimits limits_;
  const int max_connections_;
  BeforeBody before_body_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace winnow::server
