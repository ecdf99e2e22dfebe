// inspect.js, put into the program when it is built.
#pragma once

namespace winnow {

extern const char* const kInspectScript;

}  // namespace winnow
