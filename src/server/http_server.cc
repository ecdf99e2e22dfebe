#include "server/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "winnow/error.h"

namespace winnow::server {
namespace {

constexpr int kBacklog = 256;
// A connection that the client never closes is closed after this many requests, so that others get a turn.
constexpr int kMostRequests = 1000;
// The interval at which the wait for connections checks whether the server is about to end.
constexpr int kLookMs = 50;
// The pause after accept() has failed for lack of a descriptor or memory.
constexpr std::chrono::milliseconds kExhausted{10};

thread_local Connection* t_connection = nullptr;

constexpr char kRefusal[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    "Content-Length: 115\r\n\r\n"
    "{\"error\":{\"message\":\"too many connections; try again\",\"type\":\"overloaded_error\",\"param\":null,"
    "\"code\":\"connections\"}}";

// The threads of the connections, one for each, up to a limit.
class ConnectionThreads {
 public:
  explicit ConnectionThreads(int most) : most_(most) {}
  ~ConnectionThreads() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_running_ == 0; });
    for (std::thread& thread : ended_) thread.join();
  }
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  // Runs a task on a thread of its own. Returns false, without running it, if there are enough threads or no more can
  // be had.
  bool start(const std::function<void()>& task) {
    std::list<std::thread> ended;
    bool is_started = false;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(ended_);
      if (n_running_ < most_) {
        try {
          threads_.emplace_front();
          const auto place = threads_.begin();
          ++n_running_;
          *place = std::thread([this, place, task] {
            task();
            const std::lock_guard inner(mutex_);
            ended_.splice(ended_.begin(), threads_, place);
            --n_running_;
            changed_.notify_all();
          });
          is_started = true;
        } catch (const std::system_error&) {  // the machine has no thread left
          threads_.pop_front();
          --n_running_;
        }
      }
    }
    for (std::thread& thread : ended) thread.join();
    return is_started;
  }

 private:
  const int most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::thread> threads_, ended_;
  int n_running_ = 0;
};

// Refuses the connections beyond the limit, without a thread for them. They stay open for a while: closing a connection
// whose bytes are unread resets it, and the client would not see the refusal.
class RefusedConnections {
 public:
  RefusedConnections() = default;
  ~RefusedConnections() {
    while (!all_.empty()) close_first();
  }
  RefusedConnections(const RefusedConnections&) = delete;
  RefusedConnections& operator=(const RefusedConnections&) = delete;

  void add(int socket) {
    send(socket, kRefusal, sizeof(kRefusal) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(socket, SHUT_WR);
    if (all_.size() == kMost) close_first();
    all_.push_back({.socket = socket, .since = Clock::now()});
  }
  void close_old() {
    while (!all_.empty() && Clock::now() - all_.front().since > kLinger) close_first();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 64;
  static constexpr std::chrono::seconds kLinger{1};

  void close_first() {
    char unread[4096];
    for (int n = 0; n < 16 && recv(all_.front().socket, unread, sizeof(unread), MSG_DONTWAIT) > 0;) ++n;
    close(all_.front().socket);
    all_.pop_front();
  }

  struct Refused {
    int socket;
    Clock::time_point since;
  };
  std::deque<Refused> all_;
};

}  // namespace

HttpServer::HttpServer(const ConnectionLimits& limits, int max_connections)
    : limits_(limits), max_connections_(max_connections) {
  set_payload_max_length(limits.body_bytes);
  set_tcp_nodelay(true);
  set_keep_alive_timeout(static_cast<time_t>(limits.keep_alive_s));
  set_keep_alive_max_count(kMostRequests);
  // This replaces the library's SO_REUSEPORT, with which two servers would share a port unknowingly.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  errno = 0;
  const bool is_bound = port == 0 ? (port = bind_to_any_port(host)) > 0 : bind_to_port(host, port);
  if (!is_bound) {
    const std::string reason = errno != 0 ? std::strerror(errno) : "no such address";
    throw Error(ErrorCode::kIo, "cannot listen on " + host + ", port " + std::to_string(port) + ": " + reason +
                                    "; choose another address or port with --host and --port");
  }
  ::listen(svr_sock_, kBacklog);  // the library's own backlog is 5
  // A client that is gone before it is accepted must not block the next wait.
  fcntl(svr_sock_, F_SETFL, fcntl(svr_sock_, F_GETFL) | O_NONBLOCK);
  return port;
}

// This replaces the library's loop, which misses a stop() that comes before it runs, and ends for good at the first
// error of accept() that it does not know.
void HttpServer::serve() {
  const int listening = svr_sock_;
  {
    RefusedConnections refused;
    ConnectionThreads threads(max_connections_);
    const auto accept_one = [&] {
      const int socket = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) return false;
      if (!threads.start([this, socket] { process_and_close_socket(socket); })) refused.add(socket);
      return true;
    };
    while (!is_stopping_) {
      refused.close_old();
      pollfd entry{.fd = listening, .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, kLookMs) <= 0 || accept_one()) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        std::this_thread::sleep_for(kExhausted);
      }
    }
    // Clients that have connected by now are told that the server ends; later ones are refused at once.
    for (int n = 0; n < kBacklog && accept_one();) ++n;
    shutdown(listening, SHUT_RDWR);
  }
  svr_sock_ = INVALID_SOCKET;
  close(listening);
}

void HttpServer::stop_serving() { is_stopping_ = true; }

Connection* HttpServer::current() { return t_connection; }

bool HttpServer::process(httplib::Stream& stream, bool is_last) {
  bool is_closed = false;
  const bool is_answered = process_request(stream, is_last, is_closed, [this](httplib::Request& request) {
    // Answers are sent whole: of a header with thousands of ranges, the library would make as many copies of the body.
    request.ranges.clear();
    if (t_connection != nullptr) t_connection->begin_body(request);
    // The library would read a body of unknown length until the connection ends, but without either header there is
    // none (RFC 9112, 6.3).
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
      request.headers.emplace("Content-Length", "0");
    }
    const bool is_unread = before_body_ && before_body_(request);
    // A client of HTTP/1.0 is never told that its connection stays open, and may take its end for that of the answer.
    if (!is_unread && request.version != "HTTP/1.0") return;
    if (t_connection != nullptr) t_connection->abandon_body();
    request.headers.erase("Connection");
    request.headers.emplace("Connection", "close");  // the library copies the request's to its answer
  });
  return is_answered && !is_closed && !is_last;
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, limits_, is_stopping_);
  t_connection = &connection;
  try {
    for (int n = 1; n <= kMostRequests && connection.wait_for_request(); ++n) {
      const bool is_last = n == kMostRequests || is_stopping_;
      if (!process(connection, is_last) || connection.is_spent()) break;
    }
  } catch (const std::exception&) {
    // The library catches what a handler throws. What is thrown later, for lack of memory, ends this connection alone.
  }
  t_connection = nullptr;
  connection.linger();
  close(socket);
  return true;
}

}  // namespace winnow::server
