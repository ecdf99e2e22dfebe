#include "server/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <set>

#include "server/connection.h"
#include "winnow/error.h"

namespace winnow::server {
namespace {

// These paths need no key: they reveal nothing about the model, and the page asks for the key itself.
const std::set<std::string> kPublic = {"/", "/health"};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Returns "Name:8080" and "[::1]:8080" without the port.
std::string without_port(const std::string& host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

// Returns a host in lower case, without the brackets of an IPv6 address and the dot at the end of a complete name.
std::string plain_name(const std::string& host) {
  std::string name = lower(host);
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') return name.substr(1, name.size() - 2);
  if (name.size() > 1 && name.back() == '.') name.pop_back();
  return name;
}

// Returns whether a plain name matches a plain pattern. "*.local" matches every name below "local", but not that
// itself.
bool is_host_of(const std::string& name, const std::string& pattern) {
  if (!pattern.starts_with("*.")) return name == pattern;
  const std::string_view below = std::string_view(pattern).substr(1);
  return name.size() > below.size() && name.ends_with(below);
}

bool is_allowed_host(const std::string& name, const AccessOptions& options) {
  return std::any_of(options.allowed_hosts.begin(), options.allowed_hosts.end(),
                     [&](const std::string& pattern) { return is_host_of(name, plain_name(pattern)); });
}

// Refuses a Host that is not this machine's. After DNS rebinding, where a site's name is pointed at this machine, a
// browser still sends that name.
std::optional<ApiError> host_refusal(const httplib::Request& request, const AccessOptions& options) {
  if (!options.api_keys.empty() || !is_loopback(options.host)) return std::nullopt;
  if (!request.has_header("Host")) {
    if (request.version == "HTTP/1.0") return std::nullopt;  // not a browser; health checks do so
    return ApiError(400, "the request has no 'Host' header: send one");
  }
  const std::string host = request.get_header_value("Host");
  const std::string name = without_port(host);
  if (is_loopback(name) || plain_name(name) == plain_name(options.host)) return std::nullopt;
  if (is_allowed_host(plain_name(name), options)) return std::nullopt;
  return ApiError(403, "this server only answers requests to localhost, not to '" + host +
                           "': allow the name with --allow-host, or set a key with --api-key");
}

bool is_same_site(const std::string& origin, const std::string& host) {
  const std::size_t scheme = origin.find("://");
  return scheme != std::string::npos && lower(origin.substr(scheme + 3)) == lower(host);
}

std::optional<ApiError> key_refusal(const httplib::Request& request, const AccessOptions& options) {
  if (options.api_keys.empty() || kPublic.contains(request.path)) return std::nullopt;
  constexpr std::string_view kBearer = "bearer ";  // a scheme's case does not matter
  const std::string header = request.get_header_value("Authorization");
  const bool has_bearer = lower(header.substr(0, kBearer.size())) == kBearer;
  const std::string given = has_bearer ? header.substr(kBearer.size()) : request.get_header_value("x-api-key");
  if (!has_bearer && given.empty()) {
    return ApiError(401, "this server needs a key: send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'", "",
                    "missing_api_key");
  }
  bool is_known = false;
  for (const std::string& key : options.api_keys) is_known |= equal_in_constant_time(given, key);
  if (is_known) return std::nullopt;
  return ApiError(401, "the API key is wrong: send one of this server's keys", "", "invalid_api_key");
}

constexpr const char* kForm = "application/x-www-form-urlencoded";

// Returns the content type in lower case, without its parameters.
std::string content_type(const httplib::Request& request) {
  std::string type = lower(request.get_header_value("Content-Type"));
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type;
}

bool has_body(const httplib::Request& request) {
  if (request.has_header("Transfer-Encoding")) return true;
  return request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0";
}

std::optional<ApiError> body_refusal(const httplib::Request& request) {
  if (request.get_header_value_count("Host") > 1) {
    return ApiError(400, "the request has more than one 'Host' header: send one");
  }
  const std::size_t n_lengths =
      request.get_header_value_count("Content-Length") + request.get_header_value_count("Transfer-Encoding");
  if (n_lengths > 1) {
    return ApiError(400, "the request has more than one 'Content-Length' or 'Transfer-Encoding' header: send one");
  }
  if (request.has_header("Content-Length")) {
    // The library would read "-5" as a number near 2^64.
    const std::string length = request.get_header_value("Content-Length");
    constexpr std::size_t kMostDigits = 18;
    const bool is_number = std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number || length.empty() || length.size() > kMostDigits) {
      return ApiError(400, "the header 'Content-Length' must be a number of bytes, not '" + length.substr(0, 64) + "'");
    }
  }
  if (request.has_header("Transfer-Encoding") && !has_chunked_body(request)) {
    // The library would read such a body until the connection ends.
    return ApiError(501, "the only transfer coding that is supported is chunked: send the body with Content-Length");
  }
  if (request.method != "POST") return std::nullopt;
  if (!has_body(request)) return ApiError(400, "the request has no body: send JSON with Content-Length");
  if (request.has_header("Content-Encoding")) {
    return ApiError(415, "compressed bodies are not supported: send the body without Content-Encoding");
  }
  // Besides JSON, these are the types that programs send by default: none, a form's (curl) or text (fetch).
  static const std::set<std::string> kTaken = {"application/json", "", kForm, "text/plain"};
  const std::string type = content_type(request);
  if (kTaken.contains(type)) return std::nullopt;
  return ApiError(415, "the body must be JSON, not " + type + ": send the header 'Content-Type: application/json'");
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string part = list.substr(begin, end - begin);
    while (!part.empty() && part.back() == ' ') part.pop_back();
    part.erase(0, part.find_first_not_of(' '));
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// Returns whether an origin matches a pattern: "*", an origin, or one that ends in "://*" or ":*".
bool is_origin_of(const std::string& origin, const std::string& pattern) {
  if (pattern == "*") return true;
  if (!pattern.ends_with('*')) return lower(origin) == lower(pattern);
  const std::string begin = lower(pattern.substr(0, pattern.size() - 1));
  if (begin.ends_with("://")) return lower(origin).starts_with(begin);
  return lower(origin).starts_with(begin) || lower(origin) + ":" == begin;
}

bool is_allowed_origin(const std::string& origin, const AccessOptions& options) {
  const std::vector<std::string> patterns = parts_of(options.allowed_origin);
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return is_origin_of(origin, pattern); });
}

bool is_header_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

bool equal_in_constant_time(const std::string& given, const std::string& secret) {
  if (secret.empty()) return false;
  volatile unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto a = static_cast<unsigned char>(given[i]);
    const auto b = static_cast<unsigned char>(secret[i % secret.size()]);
    difference = difference | static_cast<unsigned>(a ^ b);
  }
  return difference == 0;
}

bool is_loopback(const std::string& host) {
  const std::string name = plain_name(host);
  if (name == "localhost") return true;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};  // in the order in which they are written
  if (inet_pton(AF_INET, name.c_str(), bytes.data()) == 1) return bytes[0] == 127;
  if (inet_pton(AF_INET6, name.c_str(), bytes.data()) != 1) return false;
  constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};  // ::ffff:127.0.0.1
  if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) return bytes[kMapped.size()] == 127;
  return std::count(bytes.begin(), bytes.end() - 1, 0) == std::ssize(bytes) - 1 && bytes.back() == 1;
}

bool may_ask(const httplib::Request& request, const AccessOptions& options) {
  const std::string origin = request.get_header_value("Origin");
  return origin.empty() || is_allowed_origin(origin, options) || is_same_site(origin, request.get_header_value("Host"));
}

std::optional<ApiError> refusal(const httplib::Request& request, const AccessOptions& options) {
  if (!may_ask(request, options)) {
    return ApiError(403, "pages from " + request.get_header_value("Origin") +
                             " may not use this server: start it with --cors-origin to allow them");
  }
  if (auto error = host_refusal(request, options)) return error;
  if (auto error = key_refusal(request, options)) return error;
  return body_refusal(request);
}

httplib::Headers cors_headers(const httplib::Request& request, const AccessOptions& options) {
  if (options.allowed_origin.empty()) return {};
  httplib::Headers headers = {{"Vary", "Origin"}};
  const std::string origin = request.get_header_value("Origin");
  if (options.allowed_origin == "*") {
    headers.emplace("Access-Control-Allow-Origin", "*");
  } else if (!origin.empty() && is_allowed_origin(origin, options)) {
    headers.emplace("Access-Control-Allow-Origin", origin);
  } else {
    return headers;
  }
  if (request.method != "OPTIONS") {
    headers.emplace("Access-Control-Expose-Headers", "Retry-After, X-Winnow-Context");
    return headers;
  }
  headers.emplace("Access-Control-Allow-Methods", "GET, POST, DELETE");
  headers.emplace("Access-Control-Max-Age", "7200");
  // These are the headers of OpenAI's and Anthropic's clients. Whatever else is asked for is allowed, too: the server
  // reads no header by which a page that it is open to could harm it.
  std::string allowed =
      "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta, "
      "anthropic-dangerous-direct-browser-access, openai-beta, openai-organization, openai-project, x-stainless-arch, "
      "x-stainless-helper-method, x-stainless-lang, x-stainless-os, x-stainless-package-version, "
      "x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, "
      "X-Winnow-Context";
  const std::vector<std::string> known = parts_of(lower(allowed));
  for (const std::string& name : parts_of(request.get_header_value("Access-Control-Request-Headers"))) {
    if (!is_header_name(name) || std::find(known.begin(), known.end(), lower(name)) != known.end()) continue;
    allowed += ", " + name;
  }
  headers.emplace("Access-Control-Allow-Headers", allowed);
  if (request.get_header_value("Access-Control-Request-Private-Network") == "true") {
    headers.emplace("Access-Control-Allow-Private-Network", "true");
  }
  return headers;
}

bool leaves_body_unread(const httplib::Request& request, const AccessOptions& options) {
  if (request.method != "POST") return has_body(request);
  const std::optional<ApiError> error = refusal(request, options);
  return error && (has_body(request) || error->status == 400);
}

bool is_sent_as_form(const httplib::Request& request) { return content_type(request) == kForm; }

void require_hosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    const std::string_view name = std::string_view(host).substr(host.starts_with("*.") ? 2 : 0);
    const bool has_letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
    if (has_letters && !name.empty() && name.front() != '.') continue;
    throw Error(ErrorCode::kInvalidArgument,
                "--allow-host takes names without a port (host.docker.internal, *.local), not '" + host +
                    "'; with a key (--api-key) every name is allowed");
  }
}

void require_origins(const std::string& origins) {
  for (const std::string& origin : parts_of(origins)) {
    if (origin == "*" || origin == "null") continue;
    const std::size_t scheme = origin.find("://");
    const bool is_one = scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
                        origin.find('/', scheme + 3) == std::string::npos;
    const std::size_t star = origin.find('*');
    const bool is_pattern =
        star + 1 == origin.size() && origin[star - 1] != '.' && (origin.ends_with("://*") || origin.ends_with(":*"));
    if (is_one && (star == std::string::npos || is_pattern)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "--cors-origin takes origins as browsers send them (https://example.org, app://localhost) and the "
                "patterns app://*, http://localhost:* and *, separated by commas, not '" +
                    origin + "'");
  }
}

}  // namespace winnow::server
