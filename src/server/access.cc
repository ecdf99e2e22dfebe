#include "server/access.h"

#include <algorithm>
#include <set>

namespace winnow::server {
namespace {

// Needs no key: these tell nothing about the model, and the page asks for the key itself.
const std::set<std::string> kPublic = {"/", "/health"};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "Name:8080" and "[::1]:8080" without the port.
std::string host_name(const std::string& host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  std::string name = lower(has_port ? host.substr(0, colon) : host);
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  return name;
}

bool is_same_site(const std::string& origin, const std::string& host) {
  const std::size_t scheme = origin.find("://");
  return scheme != std::string::npos && lower(origin.substr(scheme + 3)) == lower(host);
}

std::optional<ApiError> key_refusal(const httplib::Request& request, const AccessOptions& options) {
  if (options.api_keys.empty() || kPublic.contains(request.path)) return std::nullopt;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  if (!header.starts_with(kBearer)) {
    return ApiError(401, "this server needs a key: send the header 'Authorization: Bearer KEY'", "", "missing_api_key");
  }
  const std::string given = header.substr(kBearer.size());
  bool is_known = false;
  for (const std::string& key : options.api_keys) is_known |= equal_in_constant_time(given, key);
  if (is_known) return std::nullopt;
  return ApiError(401, "this key is not one of the server's", "", "invalid_api_key");
}

std::optional<ApiError> body_refusal(const httplib::Request& request) {
  const std::size_t n_lengths =
      request.get_header_value_count("Content-Length") + request.get_header_value_count("Transfer-Encoding");
  if (n_lengths > 1) return ApiError(400, "the request has two lengths: send one");
  if (request.method != "POST") return std::nullopt;
  if (request.has_header("Content-Encoding")) {
    return ApiError(415, "compressed bodies are not taken: send it without Content-Encoding");
  }
  std::string type = lower(request.get_header_value("Content-Type"));
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  if (type != "application/json") {
    return ApiError(415, "the body must be JSON: send the header 'Content-Type: application/json'");
  }
  return std::nullopt;
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
  const std::string name = lower(host);
  return name == "localhost" || name == "::1" || name == "[::1]" || name.starts_with("127.");
}

std::optional<ApiError> refusal(const httplib::Request& request, const AccessOptions& options) {
  const std::string host = request.get_header_value("Host");
  const std::string origin = request.get_header_value("Origin");
  const bool is_allowed = options.allowed_origin == "*" || (!origin.empty() && origin == options.allowed_origin);
  if (!origin.empty() && !is_allowed && !is_same_site(origin, host)) {
    return ApiError(403, "pages of " + origin + " may not use this server: start it with --cors-origin to allow them");
  }
  if (options.api_keys.empty() && is_loopback(options.host)) {
    const std::string name = host_name(host);
    if (!is_loopback(name) && name != lower(options.host)) {
      return ApiError(403, "this server answers to localhost only, not to '" + host + "': set a key with --api-key");
    }
  }
  if (auto error = key_refusal(request, options)) return error;
  return body_refusal(request);
}

}  // namespace winnow::server
