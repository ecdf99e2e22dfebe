// The bytes of a connection, through the HTTP library and our hooks to the routes. No model is loaded: fuzz_request
// covers what comes after the routes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "server/service.h"

using namespace winnow::server;  // NOLINT(google-build-using-namespace)

namespace {

class MemoryStream : public httplib::Stream {
 public:
  MemoryStream(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool is_readable() const override { return left_ > 0; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, std::size_t size) override {
    const std::size_t n = std::min(size, left_);
    if (n == 0) return -1;
    std::memcpy(to, data_, n);
    data_ += n;
    left_ -= n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char*, std::size_t size) override { return static_cast<ssize_t>(size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = "127.0.0.1";
    port = 1;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override { get_remote_ip_and_port(ip, port); }
  socket_t socket() const override { return 0; }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Service& service = *[] {
    ServiceOptions options;
    options.access.host = "127.0.0.1";
    options.access.api_keys = {"k"};
    options.log = [](const Json& line) { to_text(line); };
    return new Service(options);
  }();
  MemoryStream stream(data, size);
  for (int n = 0; n < 8 && service.http().process(stream, false); ++n) {
  }
  return 0;
}
