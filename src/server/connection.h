// One client's connection: reads that are bounded in bytes and time, writes that are bounded in time.
#pragma once

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace winnow::server {

struct ConnectionLimits {
  std::size_t header_bytes = 32 << 10;  // request line and headers together
  std::size_t body_bytes = 16 << 20;
  double header_s = 10;          // from the first byte to the end of the headers
  double body_s = 60;            // for the body
  double write_s = 30;           // without the client taking a byte
  double write_rate = 16 << 10;  // bytes a second that a client has to take of a long write, beyond write_s
  double keep_alive_s = 30;      // between two requests
};

// Returns whether the request's body comes in chunks.
bool has_chunked_body(const httplib::Request& request);

// Follows the framing of a chunked body (RFC 9112, 7.1) strictly. The library knows no trailer fields, and takes the
// end of a chunk that is longer than its size for the end of the body.
class ChunkFraming {
 public:
  enum class Verdict { kKeep, kDrop, kRefuse };

  // Takes the next byte of the body and returns whether the library is to see it. The bytes of trailer fields are
  // dropped; those that cannot come where they do are refused.
  Verdict take(char byte);

 private:
  enum class Place {
    kSizeBegin,
    kSize,
    kExtension,  // what follows the size in its line
    kSizeEnd,    // the line feed of that line
    kData,
    kDataEnd,
    kDataLineFeed,
    kTrailersBegin,  // the first byte of a trailer field, or of the empty line
    kTrailer,
    kTrailerLineFeed,
    kLastLineFeed,
    kEnd,
  };
  // Goes on to a place if the byte is the only one that may come here.
  Verdict take_only(char expected, char byte, Place next);

  Place place_ = Place::kSizeBegin;
  std::uint64_t n_left_ = 0;  // bytes of the chunk's data
};

// A client's connection as a stream of httplib. Not thread-safe. The socket belongs to the caller.
class Connection : public httplib::Stream {
 public:
  enum class Overflow { kNone, kHeaders, kBody };

  // Once `is_stopping` is true, no further request is waited for after the first.
  Connection(int socket, const ConnectionLimits& limits, const std::atomic<bool>& is_stopping);

  // Waits for a request. Returns false if none came.
  bool wait_for_request();
  // Called after the headers: the bytes that follow are the body.
  void begin_body(const httplib::Request& request);

  // Returns whether the client of the present request can read a chunked answer.
  bool takes_chunks() const { return takes_chunks_; }

  Overflow overflow() const { return overflow_; }
  // Lets no other request follow this one: what is unread stays so.
  void abandon_body() { is_abandoned_ = true; }
  bool is_spent() const { return is_abandoned_ || overflow_ != Overflow::kNone; }
  // Returns true if answers that are still under way are to be broken off.
  bool is_stopping() const { return is_stopping_; }
  // Returns whether the client has gone away.
  bool is_closed() const;
  // Lets the client read the last answer before the socket is closed.
  void linger();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  // Waits for POLLIN or POLLOUT until then, or for at most 1 s once the server ends. Returns whether it came.
  bool wait_for(short events, Clock::time_point until) const;
  bool fill();
  // Reads the bytes as they come.
  ssize_t read_unframed(char* data, std::size_t size);

  const int socket_;
  const ConnectionLimits limits_;
  const std::atomic<bool>& is_stopping_;
  const Clock::time_point opened_;
  bool is_used_ = false;            // a request has come
  std::array<char, 16384> buffer_;  // read ahead
  std::size_t begin_ = 0, end_ = 0;
  std::size_t n_allowed_ = 0;  // bytes that this part of the request may still have
  Clock::time_point deadline_;
  bool is_in_body_ = false, is_abandoned_ = false, takes_chunks_ = true;
  std::optional<ChunkFraming> chunks_;  // of a body that is sent in chunks
  Overflow overflow_ = Overflow::kNone;
};

}  // namespace winnow::server
