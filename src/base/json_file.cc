#include "base/json_file.h"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "winnow/error.h"

namespace winnow {

namespace {

constexpr std::size_t kDeepest = 16;

}  // namespace

void refuse_file(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kBadFile, "'" + path + "' " + why);
}

std::optional<nlohmann::json> parse_flat_json(std::string_view text) {
  try {
    return parse_bounded_json<nlohmann::json>(text, {.levels = kDeepest});
  } catch (const JsonRefusal&) {
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
