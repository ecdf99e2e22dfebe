#include "base/json_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "winnow/error.h"

namespace winnow {

namespace {

constexpr int kDeepest = 16;

}  // namespace

void refuse_file(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kBadFile, "'" + path + "' " + why);
}

std::optional<nlohmann::json> parse_flat_json(std::string_view text) {
  struct TooDeep {};
  try {
    return nlohmann::json::parse(text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      if (depth > kDeepest) throw TooDeep();
      return true;
    });
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const TooDeep&) {
    return std::nullopt;
  }
}

nlohmann::json parse_json(const std::string& path, std::string_view text) {
  std::optional<nlohmann::json> json = parse_flat_json(text);
  if (!json) refuse_file(path, "is not a JSON file (or nested more than " + std::to_string(kDeepest) + " deep)");
  return *std::move(json);
}

nlohmann::json read_json(const std::string& path, const InputKind& kind) {
  return parse_json(path, read_input(path, kind));
}

double number_of(const std::string& path, const nlohmann::json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    refuse_file(path, "holds something that is not a number");
  }
  return value.get<double>();
}

}  // namespace winnow
