// The instruction set that the environment names. In a program of its own: it is read when the first engine is made.
#include "winnow/instruction_set.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "engine/engine_test_support.h"
#include "kernels/simd/isa.h"

namespace winnow::test {
namespace {

// Runs in a process of its own and exits with a code for the outcome.
void exit_with_isa(const char* environment, const char* chosen) {
  setenv("WINNOW_ISA", environment, 1);
  try {
    if (*chosen != '\0') select_instruction_set(chosen);
    Engine::create(tiny_model(), {.n_threads = 1});
    std::exit(instruction_set() == kernels::supported_isas().back() ? 10 : 11);
  } catch (const Error& error) {
    std::exit(error.code() == ErrorCode::kUnsupported ? 12 : 13);
  }
}

TEST(InstructionSetDeathTest, EnginesTakeTheEnvironmentsUnlessTheProgramChose) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string least = kernels::supported_isas().back();
  const std::string best = kernels::supported_isas().front();
  if (least == best) GTEST_SKIP() << "this machine has one instruction set only";
  EXPECT_EXIT(exit_with_isa("ABACUS", ""), testing::ExitedWithCode(12), "");
  EXPECT_EXIT(exit_with_isa(least.c_str(), ""), testing::ExitedWithCode(10), "");
  EXPECT_EXIT(exit_with_isa(least.c_str(), best.c_str()), testing::ExitedWithCode(11), "");
}

}  // namespace
}  // namespace winnow::test
