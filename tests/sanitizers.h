// Reports whether the tests run under AddressSanitizer, which slows tests down up to a hundredfold. They then use fewer
// rounds and shorter prompts, in which its errors show as well as in many.
#pragma once

namespace winnow::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasSanitizers = true;
#else
inline constexpr bool kHasSanitizers = false;
#endif

// The same under an emulator of another processor (make arm-test), where the loops of a double-precision reference take
// as long.
#if defined(WINNOW_EMULATED)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = kHasSanitizers;
#endif

}  // namespace winnow::test
