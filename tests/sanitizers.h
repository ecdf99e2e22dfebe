// Reports whether the tests run under AddressSanitizer, which slows tests down up to a hundredfold. They then use fewer
// rounds, in which its errors show as well as in many.
#pragma once

namespace winnow::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasSanitizers = true;
#else
inline constexpr bool kHasSanitizers = false;
#endif

}  // namespace winnow::test
