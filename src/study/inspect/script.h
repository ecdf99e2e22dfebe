// inspect.js, compiled into the program.
#pragma once

namespace winnow {

extern const char* const kInspectScript;

}  // namespace winnow
