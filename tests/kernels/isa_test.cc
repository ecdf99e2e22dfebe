#include "kernels/simd/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "winnow/error.h"

namespace winnow::kernels {
namespace {

TEST(InstructionSets, TheBestOneIsTakenUnlessOneIsForced) {
  const std::vector<std::string> isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  if (std::getenv("WINNOW_ISA") == nullptr) {
    EXPECT_EQ(current_isa(), isas.front());
  }
  for (const std::string& isa : isas) {
    force_isa(isa);
    EXPECT_EQ(current_isa(), isa);
    EXPECT_EQ(supported_isas(), isas) << "the list does not depend on what is forced";
  }
  force_isa("");
  EXPECT_EQ(current_isa(), isas.front());
}

TEST(InstructionSets, OthersAreRefusedWithTheList) {
  const std::string before = current_isa();
  try {
    force_isa("AVX9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (const std::string& isa : supported_isas()) EXPECT_NE(std::string(error.what()).find(isa), std::string::npos);
  }
  EXPECT_EQ(current_isa(), before);
}

}  // namespace
}  // namespace winnow::kernels
