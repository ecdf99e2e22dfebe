// A complete server with a tiny model on a free port of this machine, and raw connections to it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/tiny_model.h"
#include "server/service.h"
#include "wait_until.h"

namespace winnow::server {

using test::wait_until;

inline int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

class HttpTest : public testing::Test {
 protected:
  explicit HttpTest(const std::string& chat_template = test::kChatmlTemplate, const ModelOptions& options = {})
      : file_({.chat_template = chat_template}), model_(Model::load(file_.path(), options)) {}

  void start(const std::function<void(ServiceOptions&)>& change = {}, const BatchOptions& batch = {},
             std::size_t kv_limit = std::size_t{64} << 20) {
    ServiceOptions options;
    options.access.host = "127.0.0.1";
    options.model_name = "tiny";
    options.defaults.n_parallel = batch.n_parallel;
    options.defaults.sampling.temperature = 0;
    if (change) change(options);
    service_ = std::make_unique<Service>(options);
    port_ = service_->bind("127.0.0.1", 0);
    thread_ = std::thread([this] { service_->serve(); });
    engine_ = Engine::create(model_, {.n_threads = 1, .kv_bytes_limit = kv_limit, .n_batch = 64});
    batch_ = std::make_unique<Batch>(engine_, batch);
    service_->set_batch(batch_.get());
  }
  void TearDown() override { stop(1); }
  void stop(double seconds) {
    if (!service_) return;
    service_->stop(seconds);
    thread_.join();
    batch_.reset();
    service_.reset();
  }

  httplib::Client client() {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(300);  // a machine may be busy, and sanitizers slow
    return client;
  }
  httplib::Result post(const std::string& path, const std::string& body, const httplib::Headers& headers = {}) {
    return client().Post(path, headers, body, "application/json");
  }
  // These return the response to a request that must succeed.
  Json answer_to(const std::string& path, const Json& body) {
    const auto answer = post(path, body.dump());
    EXPECT_EQ(answer->status, 200) << answer->body;
    return Json::parse(answer->body);
  }
  Json get_json(const std::string& path) {
    const auto answer = client().Get(path);
    EXPECT_EQ(answer->status, 200) << answer->body;
    return Json::parse(answer->body);
  }
  // Returns the body of a completion request that generates n_tokens tokens and does not end earlier.
  static std::string completion(int n_tokens, const std::string& more = "") {
    return R"({"prompt":"the hat and the","ignore_eos":true,"max_tokens":)" + std::to_string(n_tokens) + more + "}";
  }

  int open_connection() const { return connect_to(port_); }
  // Returns the bytes received until the server closes the connection or no more arrive for wait_ms.
  static std::string read_all(int fd, int wait_ms = 5000) {
    std::string all;
    char buffer[4096];
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    while (poll(&entry, 1, wait_ms) > 0) {
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }
  // Sends the bytes unchanged, until the server accepts no more.
  static void send_all(int fd, const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  }
  std::string raw(const std::string& bytes) const {
    const int fd = open_connection();
    send_all(fd, bytes);
    const std::string answer = read_all(fd);
    close(fd);
    return answer;
  }

  const test::TinyModel file_;
  const std::shared_ptr<const Model> model_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  int port_ = 0;
};

// A server with Qwen3's template, which supports tools and thinking.
class QwenHttpTest : public HttpTest {
 protected:
  QwenHttpTest() : HttpTest(test::read_bytes(WINNOW_TEMPLATES "/Qwen-Qwen3-0.6B.jinja")) {}
};

}  // namespace winnow::server
