// A value of a model file's metadata.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "winnow/api.h"

namespace WINNOW_API winnow {

using MetadataValue = std::variant<bool, std::int64_t, double, std::string>;

}  // namespace winnow
