// Includes the vector instructions of x86-64. Included after every other header and before attributes are pushed, so
// that none of their inline functions is compiled for an instruction set that the processor may lack.
#pragma once

// gcc 12 reports uninitialised variables in its own header of the vector instructions.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
