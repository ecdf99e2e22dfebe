// JSON files that a user names: read whole, with errors that say what is wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/input_file.h"

namespace winnow {

// Error(kBadFile): "'path' why".
[[noreturn]] void refuse_file(const std::string& path, const std::string& why);

// Nothing for what is not JSON, and for what is nested deeper than any file that is read here: a level takes far more
// memory than the byte that opens it.
std::optional<nlohmann::json> parse_flat_json(std::string_view text);

// Throws Error(kBadFile) where parse_flat_json gives nothing.
nlohmann::json parse_json(const std::string& path, std::string_view text);

// Throws Error(kIo), or Error(kBadFile) for more than the kind may have and as parse_json does.
nlohmann::json read_json(const std::string& path, const InputKind& kind);

// Throws Error(kBadFile) for anything but a finite number.
double number_of(const std::string& path, const nlohmann::json& value);

}  // namespace winnow
