// The version of winnow. It is written down only here; CMakeLists.txt reads it from this file.
#pragma once

#include "winnow/api.h"

#define WINNOW_VERSION_MAJOR 0
#define WINNOW_VERSION_MINOR 1
#define WINNOW_VERSION_PATCH 0

#define WINNOW_STRINGIZE_(x) #x
#define WINNOW_STRINGIZE(x) WINNOW_STRINGIZE_(x)

namespace WINNOW_API winnow {

// "MAJOR.MINOR.PATCH"
inline constexpr const char* kVersion = WINNOW_STRINGIZE(WINNOW_VERSION_MAJOR) "." WINNOW_STRINGIZE(
    WINNOW_VERSION_MINOR) "." WINNOW_STRINGIZE(WINNOW_VERSION_PATCH);

}  // namespace winnow

#undef WINNOW_STRINGIZE
#undef WINNOW_STRINGIZE_
