#include "server/connection.h"

#include <netdb.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <span>

namespace winnow::server {
namespace {

// The interval at which a wait checks whether the server is about to end.
constexpr std::chrono::milliseconds kWaitSlice{100};
// The longest wait for a client that neither sends nor reads while the server ends.
constexpr std::chrono::seconds kLastWait{1};

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

int poll_one(int socket, short events, std::chrono::steady_clock::duration wait) {
  pollfd entry{.fd = socket, .events = events, .revents = 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  return poll(&entry, 1, static_cast<int>(std::clamp<long long>(ms, 0, 3'600'000)));
}

using Name = int (*)(int, sockaddr*, socklen_t*);
void address_of(int socket, Name name, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (name(socket, generic, &size) != 0 || getnameinfo(generic, size, host.data(), host.size(), service.data(),
                                                       service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  port = std::atoi(service.data());
}

}  // namespace

ChunkFraming::Verdict ChunkFraming::take_only(char expected, char byte, Place next) {
  place_ = next;
  return byte == expected ? Verdict::kKeep : Verdict::kRefuse;
}

ChunkFraming::Verdict ChunkFraming::take(char byte) {
  const bool is_digit = std::isxdigit(static_cast<unsigned char>(byte)) != 0;
  switch (place_) {
    case Place::kSizeBegin:
      n_left_ = 0;
      place_ = Place::kSize;
      if (!is_digit) return Verdict::kRefuse;
      [[fallthrough]];
    case Place::kSize:
      if (is_digit) {
        if ((n_left_ >> 56U) != 0) return Verdict::kRefuse;
        n_left_ = n_left_ * 16 + static_cast<unsigned>(byte <= '9' ? byte - '0' : std::tolower(byte) - 'a' + 10);
        return Verdict::kKeep;
      }
      if (byte != ';' && byte != ' ' && byte != '\t') return take_only('\r', byte, Place::kSizeEnd);
      place_ = Place::kExtension;
      return Verdict::kKeep;
    case Place::kExtension:
      if (byte == '\r') place_ = Place::kSizeEnd;
      return byte == '\n' ? Verdict::kRefuse : Verdict::kKeep;
    case Place::kSizeEnd:
      return take_only('\n', byte, n_left_ > 0 ? Place::kData : Place::kTrailersBegin);
    case Place::kData:
      if (--n_left_ == 0) place_ = Place::kDataEnd;
      return Verdict::kKeep;
    case Place::kDataEnd:
      return take_only('\r', byte, Place::kDataLineFeed);
    case Place::kDataLineFeed:
      return take_only('\n', byte, Place::kSizeBegin);
    case Place::kTrailersBegin:
      if (byte == '\r') return take_only('\r', byte, Place::kLastLineFeed);
      place_ = Place::kTrailer;
      [[fallthrough]];
    case Place::kTrailer:
      if (byte == '\r') place_ = Place::kTrailerLineFeed;
      return byte == '\n' ? Verdict::kRefuse : Verdict::kDrop;
    case Place::kTrailerLineFeed:
      place_ = Place::kTrailersBegin;
      return byte == '\n' ? Verdict::kDrop : Verdict::kRefuse;
    case Place::kLastLineFeed:
      return take_only('\n', byte, Place::kEnd);
    case Place::kEnd:
      break;
  }
  return Verdict::kRefuse;
}

Connection::Connection(int socket, const ConnectionLimits& limits, const std::atomic<bool>& is_stopping)
    : socket_(socket), limits_(limits), is_stopping_(is_stopping), opened_(Clock::now()) {}

bool Connection::wait_for(short events, Clock::time_point until) const {
  std::optional<Clock::time_point> stopped;
  for (;;) {
    const auto now = Clock::now();
    if (!stopped && is_stopping_) stopped = now;
    if (stopped) until = std::min(until, *stopped + kLastWait);
    // The socket is polled at least once: bytes that are there already are taken, however late this thread comes.
    const auto left = std::clamp<Clock::duration>(until - now, Clock::duration::zero(), kWaitSlice);
    const int ready = poll_one(socket_, events, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (Clock::now() >= until) return false;
  }
}

bool Connection::wait_for_request() {
  is_in_body_ = false;
  chunks_.reset();
  overflow_ = Overflow::kNone;
  n_allowed_ = limits_.header_bytes;
  const auto until = Clock::now() + duration_of(limits_.keep_alive_s);
  // A client that has just connected gets an answer, even if it is that the server ends: a proxy may send a request
  // elsewhere that was refused, but not one that met a closed connection.
  const auto until_end = is_used_ ? Clock::time_point() : opened_ + kLastWait;
  while (begin_ == end_) {
    if (wait_for(POLLIN, std::min(until, Clock::now() + kWaitSlice))) break;
    if (Clock::now() >= (is_stopping_ ? std::min(until, until_end) : until)) return false;
  }
  is_used_ = true;
  deadline_ = Clock::now() + duration_of(limits_.header_s);
  return true;
}

bool has_chunked_body(const httplib::Request& request) {
  return strcasecmp(request.get_header_value("Transfer-Encoding").c_str(), "chunked") == 0;
}

void Connection::begin_body(const httplib::Request& request) {
  is_in_body_ = true;
  takes_chunks_ = request.version != "HTTP/1.0";
  if (has_chunked_body(request)) chunks_.emplace();
  // Chunked bodies have sizes in between, for which there is room here. The library limits their content.
  n_allowed_ = limits_.body_bytes + limits_.body_bytes / 8 + 4096;
  deadline_ = Clock::now() + duration_of(limits_.body_s);
}

bool Connection::fill() {
  if (!wait_for(POLLIN, deadline_)) return false;
  for (;;) {
    const ssize_t n = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    begin_ = 0;
    end_ = static_cast<std::size_t>(n);
    return true;
  }
}

ssize_t Connection::read(char* data, std::size_t size) {
  for (;;) {
    const ssize_t n = read_unframed(data, size);
    if (n <= 0 || !chunks_) return n;
    char* end = data;
    for (const char byte : std::span(data, static_cast<std::size_t>(n))) {
      const ChunkFraming::Verdict verdict = chunks_->take(byte);
      if (verdict == ChunkFraming::Verdict::kRefuse) {
        is_abandoned_ = true;  // nobody knows where the next request begins
        return -1;
      }
      if (verdict == ChunkFraming::Verdict::kKeep) *end++ = byte;
    }
    if (end != data) return end - data;
  }
}

ssize_t Connection::read_unframed(char* data, std::size_t size) {
  if (n_allowed_ == 0) {
    overflow_ = is_in_body_ ? Overflow::kBody : Overflow::kHeaders;
    return -1;
  }
  if (begin_ == end_ && !fill()) {
    is_abandoned_ = true;  // half a request: no other can follow it
    return -1;
  }
  const std::size_t n = std::min({size, end_ - begin_, n_allowed_});
  std::memcpy(data, buffer_.data() + begin_, n);
  begin_ += n;
  n_allowed_ -= n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* data, std::size_t size) {
  std::size_t done = 0;
  const auto deadline = Clock::now() + duration_of(limits_.write_s + static_cast<double>(size) / limits_.write_rate);
  while (done < size) {
    const auto now = Clock::now();
    if (now >= deadline || !wait_for(POLLOUT, std::min(deadline, now + duration_of(limits_.write_s)))) return -1;
    const ssize_t n = send(socket_, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return -1;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

bool Connection::is_closed() const {
  pollfd entry{.fd = socket_, .events = POLLIN | POLLRDHUP, .revents = 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  if ((entry.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return true;
  // A client that has closed only its sending half may still read, but such clients are rarer than those that are gone.
  return (entry.revents & POLLRDHUP) != 0;
}

void Connection::linger() {
  shutdown(socket_, SHUT_WR);
  const auto until = Clock::now() + std::chrono::seconds(1);
  std::size_t n_dropped = 0;
  while (n_dropped < (std::size_t{4} << 20) && wait_for(POLLIN, until)) {
    const ssize_t n = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n <= 0) break;
    n_dropped += static_cast<std::size_t>(n);
  }
}

bool Connection::is_readable() const { return begin_ < end_ || poll_one(socket_, POLLIN, Clock::duration::zero()) > 0; }

bool Connection::is_writable() const { return !is_closed(); }

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  address_of(socket_, getpeername, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const { address_of(socket_, getsockname, ip, port); }

}  // namespace winnow::server
