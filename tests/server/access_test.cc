// Access control, and the responses to hostile requests.
#include "server/access.h"

#include <algorithm>
#include <chrono>

#include "server/http_test_support.h"

namespace winnow::server {
namespace {

std::string status_of(const std::string& answer) { return answer.substr(0, answer.find('\r')); }

class AccessTest : public HttpTest {
 protected:
  void start_with_keys() {
    start([](ServiceOptions& options) { options.access.api_keys = {"first-key", "second-key"}; });
  }
};

TEST(ConstantTimeTest, ComparesAsEqualsDoes) {
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  for (const char* wrong : {"", "s", "secre", "secres", "Secret", "secretsecret", "secret "}) {
    EXPECT_FALSE(equal_in_constant_time(wrong, "secret")) << wrong;
  }
  EXPECT_FALSE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time(std::string("a\0b", 3), "a"));
}

TEST(ConstantTimeTest, TimeDoesNotTellWhereTheDifferenceIs) {
  const std::string secret(4 << 20, 'k');
  std::string early = secret, late = secret;
  early.front() = late.back() = 'x';
  const auto seconds = [&](const std::string& given) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(equal_in_constant_time(given, secret));
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  // A comparison that ends at the first difference would be thousands of times faster.
  EXPECT_GT(seconds(early), seconds(late) / 4);
}

TEST(LoopbackTest, KnowsItsNames) {
  for (const char* name : {"localhost", "127.0.0.1", "127.3.4.5", "::1", "[::1]", "LOCALHOST", "localhost.",
                           "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(name)) << name;
  }
  for (const char* name : {"0.0.0.0", "::", "example.org", "localhost.example.org", "192.168.0.1", "127.evil.example",
                           "127.0.0.1.evil.example", "127.0.0.1x", "127.", "127.1.", "", "1::", "::1:1",
                           "::ffff:8.8.8.8", "localhost..", "[127.0.0.1", "::1]"}) {
    EXPECT_FALSE(is_loopback(name)) << name;
  }
}

TEST_F(AccessTest, KeysAreNeededEverywhereButForHealthAndThePage) {
  start_with_keys();
  for (const char* path : {"/v1/models", "/v1/kv", "/metrics", "/nothing"}) {
    const auto response = client().Get(path);
    EXPECT_EQ(response->status, 401) << path;
    EXPECT_EQ(response->get_header_value("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(post("/v1/completions", completion(2))->status, 401);
  EXPECT_EQ(client().Get("/health")->status, 200);
  EXPECT_EQ(client().Get("/")->status, 200);
  for (const char* header : {"Bearer wrong", "Bearer first-ke", "Bearer first-keyx", "Basic first-key", "first-key",
                             "Bearer ", "Bearerfirst-key"}) {
    EXPECT_EQ(post("/v1/completions", completion(2), {{"Authorization", header}})->status, 401) << header;
  }
  for (const char* header : {"Bearer first-key", "Bearer second-key", "bearer first-key", "BEARER second-key"}) {
    EXPECT_EQ(post("/v1/completions", completion(2), {{"Authorization", header}})->status, 200) << header;
  }
}

TEST_F(AccessTest, ARefusedBodyIsNotTheNextRequest) {
  start_with_keys();
  const std::string inner = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answer =
      raw("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: " +
          std::to_string(inner.size()) + "\r\n\r\n" + inner);
  EXPECT_EQ(status_of(answer), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(answer.find("HTTP/1.1", 5), std::string::npos) << answer;
}

TEST_F(AccessTest, ABodyNobodyReadsIsNotTheNextRequest) {
  start();
  const std::string inner = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string length = "Content-Length: " + std::to_string(inner.size()) + "\r\n";
  const std::string answer = raw("GET /health HTTP/1.1\r\nHost: localhost\r\n" + length + "\r\n" + inner);
  EXPECT_EQ(status_of(answer), "HTTP/1.1 200 OK");
  EXPECT_EQ(answer.find("HTTP/1.1", 5), std::string::npos) << answer;
  for (const char* second : {"Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n"}) {
    EXPECT_EQ(status_of(raw("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                            length + second + "\r\n" + inner)),
              "HTTP/1.1 400 Bad Request");
  }
}

TEST_F(AccessTest, PagesOfOtherSitesAreRefused) {
  start();
  const std::string self = "http://127.0.0.1:" + std::to_string(port_);
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", self}})->status, 200);
  for (const char* origin : {"https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"}) {
    const auto response = client().Get("/v1/models", {{"Origin", origin}});
    EXPECT_EQ(response->status, 403) << origin;
    EXPECT_FALSE(response->has_header("Access-Control-Allow-Origin"));
    EXPECT_EQ(post("/v1/completions", completion(2), {{"Origin", origin}})->status, 403);
  }
  for (const char* path : {"/v1/completions", "/v1/kv", "/"}) {
    const auto preflight =
        client().Options(path, {{"Origin", "https://evil.example"}, {"Access-Control-Request-Method", "POST"}});
    EXPECT_EQ(preflight->status, 403) << path;
    for (const char* header : {"Access-Control-Allow-Origin", "Access-Control-Allow-Methods"}) {
      EXPECT_FALSE(preflight->has_header(header)) << path;
    }
  }
  // A form of another site can send these without a preflight, but the browser names the page's origin.
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"}) {
    const httplib::Headers site = {{"Origin", "https://evil.example"}};
    EXPECT_EQ(client().Post("/v1/completions", site, completion(2), type)->status, 403) << type;
  }
}

TEST_F(AccessTest, BodiesAreJsonWhateverTheirTypeSays) {
  start();
  const std::string body = completion(2, R"(,"user":")" + std::string(20'000, 'u') + "\"");
  for (const char* type : {"application/json", "application/json; charset=utf-8", "text/plain;charset=UTF-8",
                           "application/x-www-form-urlencoded", "Application/X-WWW-Form-Urlencoded; charset=UTF-8"}) {
    EXPECT_EQ(client().Post("/v1/completions", body, type)->status, 200) << type;
  }
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + length;
  EXPECT_EQ(status_of(raw(head + "\r\n" + body)), "HTTP/1.1 200 OK");
  EXPECT_EQ(status_of(raw(head + "Content-Type:\r\n\r\n" + body)), "HTTP/1.1 200 OK");
  for (const char* type : {"multipart/form-data; boundary=x", "application/xml", "application/octet-stream"}) {
    EXPECT_EQ(client().Post("/v1/completions", body, type)->status, 415) << type;
  }
}

// The second of two requests on a connection is answered unless the first response announces that it will not be.
TEST_F(AccessTest, AConnectionIsNotClosedThatWasAnnouncedAsKept) {
  start([](ServiceOptions& options) { options.limits.body_bytes = 10'000; });
  const std::string next = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const auto head = [](const std::string& method, const std::string& path, const std::string& more) {
    return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
  };
  const std::vector<std::string> requests = {
      head("GET", "/health", "Content-Length: 2\r\n") + "{}",
      head("GET", "/health", "Content-Length: 0\r\n"),
      head("DELETE", "/v1/responses/x", "Content-Length: 2\r\n") + "{}",
      head("DELETE", "/v1/responses/x", "Content-Length: 0\r\n"),
      head("PUT", "/v1/completions", "Content-Length: 5000\r\n") + std::string(5000, ' '),
      head("OPTIONS", "/health", "Transfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n",
      head("POST", "/tokenize", "Content-Type: application/xml\r\nContent-Length: 2\r\n") + "{}",
      head("POST", "/tokenize", "Origin: https://evil.example\r\nContent-Length: 2\r\n") + "{}",
      head("POST", "/tokenize", "Content-Encoding: gzip\r\nContent-Length: 2\r\n") + "{}",
      head("POST", "/tokenize", "Content-Length: 20000\r\n") + std::string(20'000, ' '),
      head("POST", "/tokenize", "Transfer-Encoding: chunked\r\n") + "4e20\r\n" + std::string(20'000, ' ') +
          "\r\n0\r\n\r\n",
      head("POST", "/nothing", "Content-Length: 2\r\n") + "{}",
      head("POST", "/tokenize", "Content-Length: 1\r\n") + "{",
      "nonsense\r\n\r\n",
  };
  for (const std::string& request : requests) {
    const int fd = open_connection();
    send_all(fd, request);
    std::string answer;
    char buffer[4096];
    while (answer.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(n));
    }
    const bool is_kept = answer.find("Connection: close") == std::string::npos;
    send_all(fd, next);
    const std::string rest = answer + read_all(fd);
    close(fd);
    EXPECT_EQ(rest.find("HTTP/1.1 200 OK", 5) != std::string::npos, is_kept) << request.substr(0, 80) << "\n" << rest;
  }
}

TEST_F(AccessTest, NamesThatArePointedHereAreRefused) {
  start();
  for (const char* host : {"evil.example", "127.evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example",
                           "[::1].evil.example", "127.0.0.1@evil.example", ":80", "localhost:80:80"}) {
    EXPECT_EQ(client().Get("/v1/models", {{"Host", host}})->status, 403) << host;
  }
  for (const char* host : {"localhost", "localhost:9", "localhost.:9", "LocalHost", "[::1]:9", "127.0.0.1:80"}) {
    EXPECT_EQ(client().Get("/v1/models", {{"Host", host}})->status, 200) << host;
  }
  EXPECT_EQ(status_of(raw("GET /health HTTP/1.0\r\n\r\n")), "HTTP/1.1 200 OK");
  EXPECT_EQ(status_of(raw("GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n")), "HTTP/1.1 403 Forbidden");
  EXPECT_EQ(status_of(raw("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status_of(raw("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")),
            "HTTP/1.1 400 Bad Request");
}

TEST_F(AccessTest, NamesThatAreAllowedAreNot) {
  start([](ServiceOptions& options) { options.access.allowed_hosts = {"host.docker.internal", "*.local", "Box"}; });
  for (const char* host : {"host.docker.internal", "host.docker.internal:11434", "HOST.docker.internal.", "nas.local",
                           "a.b.local:80", "box", "localhost"}) {
    EXPECT_EQ(client().Get("/v1/models", {{"Host", host}})->status, 200) << host;
  }
  for (const char* host : {"docker.internal", "a.host.docker.internal", "host.docker.internal.evil.example", "local",
                           ".local", "nas.local.evil.example", "nas.localx", "evillocal", "boxx"}) {
    EXPECT_EQ(client().Get("/v1/models", {{"Host", host}})->status, 403) << host;
  }
  // Pages of other sites are refused, whatever host name they use.
  EXPECT_EQ(client().Get("/v1/models", {{"Host", "nas.local"}, {"Origin", "https://evil.example"}})->status, 403);
}

TEST(AllowedHostsTest, AreNames) {
  EXPECT_NO_THROW(require_hosts({"host.docker.internal", "*.local", "box", "a-b_c.1"}));
  for (const char* wrong : {"", "*", "*.", "*.*", "a.*", "http://box", "box:80", "box/", "a b", ".local", "[::1]"}) {
    EXPECT_THROW(require_hosts({wrong}), Error) << wrong;
  }
}

TEST_F(AccessTest, LengthsThatAreNoneAreRefused) {
  start();
  for (const char* length : {"-5", "-1", "5x", "0x5", "1e3", "+5", "18446744073709551616", "99999999999999999999999"}) {
    for (const char* method : {"POST", "GET"}) {
      EXPECT_EQ(status_of(raw(std::string(method) +
                              " /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                              "Content-Length: " +
                              length + "\r\n\r\n{\"a\"}")),
                "HTTP/1.1 400 Bad Request")
          << method << " " << length;
    }
  }
}

TEST_F(AccessTest, AnAllowedSiteMayAsk) {
  start([](ServiceOptions& options) { options.access.allowed_origin = "https://good.example"; });
  const auto preflight = client().Options("/v1/completions", {{"Origin", "https://good.example"}});
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->get_header_value("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", "https://good.example"}})->status, 200);
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", "https://bad.example"}})->status, 403);
}

TEST_F(AccessTest, EverySiteMayAskWhereThatIsWanted) {
  start([](ServiceOptions& options) {
    options.access.allowed_origin = "*";
    options.access.api_keys = {"key"};
  });
  const httplib::Headers site = {{"Origin", "https://any.example"}};
  EXPECT_EQ(client().Options("/v1/completions", site)->get_header_value("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(client().Get("/v1/models", site)->status, 401);
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", "https://any.example"}, {"Authorization", "Bearer key"}})->status,
            200);
}

// Requests of the OpenAI and Anthropic clients in a browser, and of apps with pages of their own.
TEST_F(AccessTest, SdksInAPageMayAsk) {
  start([](ServiceOptions& options) {
    options.access.allowed_origin = "https://good.example, app://*,tauri://localhost,http://localhost:*";
  });
  for (const char* origin : {"https://good.example", "app://obsidian.md", "tauri://localhost", "http://localhost:5173",
                             "http://localhost", "HTTPS://GOOD.example"}) {
    const auto preflight = client().Options(
        "/v1/completions", {{"Origin", origin},
                            {"Access-Control-Request-Method", "POST"},
                            {"Access-Control-Request-Headers", "authorization,x-of-another-sdk,bad name"}});
    EXPECT_EQ(preflight->status, 204) << origin;
    EXPECT_EQ(preflight->get_header_value("Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(preflight->get_header_value("Access-Control-Max-Age"), "7200");
    const std::string allowed = preflight->get_header_value("Access-Control-Allow-Headers");
    for (const char* name : {"x-stainless-os", "x-stainless-retry-count", "openai-beta", "anthropic-beta",
                             "anthropic-dangerous-direct-browser-access", "x-of-another-sdk"}) {
      EXPECT_NE(allowed.find(name), std::string::npos) << name;
    }
    EXPECT_EQ(allowed.find("bad name"), std::string::npos);
    const auto answer = client().Get("/v1/models", {{"Origin", origin}});
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->get_header_value("Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(answer->get_header_value("Vary"), "Origin");
  }
  for (const char* origin : {"https://good.example.evil", "http://good.example", "tauri://localhost.evil", "null",
                             "http://localhost.evil:80", "https://localhost:5173", "xapp://x"}) {
    EXPECT_EQ(client().Options("/v1/completions", {{"Origin", origin}})->status, 403) << origin;
    EXPECT_EQ(client().Get("/v1/models", {{"Origin", origin}})->status, 403) << origin;
  }
}

TEST(OriginsTest, WhatNoBrowserSendsIsRefused) {
  for (const char* origins : {"", "*", "null", "https://example.org", "app://*",
                              "http://localhost:*, tauri://localhost", "chrome-extension://abcdef,*"}) {
    EXPECT_NO_THROW(require_origins(origins)) << origins;
  }
  for (const char* origins : {"example.org", "https://example.org/", "https://", "https://*.example.org", "*://x",
                              "https://example.org,localhost"}) {
    EXPECT_THROW(require_origins(origins), Error) << origins;
  }
}

TEST_F(AccessTest, LargeBodiesAreRefused) {
  start([](ServiceOptions& options) { options.limits.body_bytes = 10000; });
  const std::string fits = R"({"prompt":"x","max_tokens":1,"user":")" + std::string(9000, 'u') + "\"}";
  EXPECT_EQ(post("/v1/completions", fits)->status, 200);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
  for (const std::size_t n : {std::size_t{10001}, std::size_t{1} << 20}) {
    EXPECT_EQ(status_of(raw(head + "Content-Length: " + std::to_string(n) + "\r\n\r\n" + std::string(n, ' '))),
              "HTTP/1.1 413 Payload Too Large");
  }
  // The announced body is never sent, and the response does not wait for it.
  EXPECT_EQ(status_of(raw(head + "Content-Length: 99999999999\r\n\r\n" + std::string(30000, ' '))),
            "HTTP/1.1 413 Payload Too Large");
  std::string chunks = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 100; ++i) chunks += "400\r\n" + std::string(1024, ' ') + "\r\n";
  EXPECT_EQ(status_of(raw(chunks)), "HTTP/1.1 413 Payload Too Large");
}

TEST_F(AccessTest, FloodsOfHeadersAreRefused) {
  start();
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 100000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_EQ(status_of(raw(many)), "HTTP/1.1 431 Request Header Fields Too Large");
  for (const std::string& endless :
       {"GET /" + std::string(200000, 'a'), std::string(200000, '\r'),
        "GET /health HTTP/1.1\r\nX: " + std::string(200000, 'b'), std::string(200000, '\0'),
        "GET /health HTTP/1.1\r\nHost: localhost\r\nRange: bytes=" + std::string(200000, '1')}) {
    const std::string answer = raw(endless);
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4")) << status_of(answer);
  }
  EXPECT_EQ(client().Get("/health")->status, 200);
}

TEST_F(AccessTest, OddRangesDoNoHarm) {
  start();
  std::string ranges = "0-0", wholes = "-";
  while (ranges.size() < 7900) ranges += ",0-0";
  while (wholes.size() < 7900) wholes += ",-";
  for (const std::string& range : {"bytes=" + ranges, "bytes=" + wholes, "bytes=" + std::string(7900, '1') + "-",
                                   "bytes=-," + std::string(7900, ' ') + "-", std::string("bytes=-0"),
                                   std::string("bytes=99999999999999999999-1"), std::string("bytes=5-2")}) {
    raw("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: " + range + "\r\n\r\n");
    EXPECT_EQ(client().Get("/health")->status, 200);
  }
}

// A range that begins nowhere ("-") is the whole body, so that a header of 8 KB asks for thousands of copies of it.
TEST_F(AccessTest, AnswersAreSentWholeWhateverTheRange) {
  start();
  std::string wholes = "bytes=-";
  while (wholes.size() < 7900) wholes += ",-";
  for (const std::string& range : {std::string("bytes=0-0"), std::string("bytes=2-"), wholes}) {
    const httplib::Headers headers = {{"Range", range}};
    const auto page = client().Get("/");
    const auto same = client().Get("/", headers);
    EXPECT_EQ(same->status, 200);
    EXPECT_EQ(same->body, page->body);
    EXPECT_EQ(client().Head("/", headers)->get_header_value("Content-Length"), std::to_string(page->body.size()));
    EXPECT_EQ(post("/tokenize", R"({"content":"hat"})", headers)->body,
              post("/tokenize", R"({"content":"hat"})")->body);
  }
}

TEST_F(AccessTest, SlowSendersAreGivenUp) {
  start([](ServiceOptions& options) {
    options.limits.header_s = 0.3;
    options.limits.body_s = 0.3;
  });
  for (const char* part : {"GET /health HT",
                           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                           "application/json\r\nContent-Length: 50\r\n\r\n{"}) {
    const int fd = open_connection();
    send_all(fd, part);
    const auto start = std::chrono::steady_clock::now();
    const std::string answer = read_all(fd, 10000);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4")) << answer;
    close(fd);
  }
}

TEST_F(AccessTest, IdleConnectionsLeaveRoomForOthers) {
  start([](ServiceOptions& options) {
    options.max_connections = 4;
    options.limits.keep_alive_s = 1;
  });
  std::vector<int> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(open_connection());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string answer = raw("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(answer), "HTTP/1.1 503 Service Unavailable");
  EXPECT_EQ(Json::parse(answer.substr(answer.find("\r\n\r\n")))["error"]["code"], "connections");
  wait_until([&] {
    const auto response = client().Get("/health");
    return response && response->status == 200;
  });
  for (const int fd : idle) close(fd);
}

TEST_F(AccessTest, PathsAreNotFiles) {
  start();
  for (const char* path :
       {"/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/models/../../etc/passwd", "/page.html",
        "/.git/config", "/v1/models%00", "/\\..\\", "/v1//models"}) {
    const std::string answer =
        raw(std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400"))
        << path << answer.substr(0, 200);
    EXPECT_EQ(answer.find("root:"), std::string::npos);
  }
}

TEST_F(AccessTest, NonsenseIsAnsweredOrDropped) {
  start();
  for (const std::string& nonsense :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("\x16\x03\x01\x02", 4) + std::string(100, 'x') + "\r\n\r\n", std::string("FOO / HTTP/1.1\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    const int fd = open_connection();
    send_all(fd, nonsense);
    shutdown(fd, SHUT_WR);
    const std::string answer = read_all(fd, 2000);
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4")) << answer;
    close(fd);
  }
  EXPECT_EQ(client().Get("/health")->status, 200);
}

}  // namespace
}  // namespace winnow::server
