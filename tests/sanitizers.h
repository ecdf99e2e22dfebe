// How much a test does where sanitizers look on: they slow it down up to a hundredfold, and the errors that they find
// show in few rounds as well as in many.
#pragma once

namespace winnow::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasSanitizers = true;
#else
inline constexpr bool kHasSanitizers = false;
#endif

}  // namespace winnow::test
