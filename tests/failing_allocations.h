// Allocations by operator new that fail on request. Linking this replaces operator new in the whole program, so tests
// that use it are separate programs. Allocations by malloc do not fail, nor do those of ggml, libllama and oneDNN,
// which are left damaged by a failure.
#pragma once

#include <cstdint>

namespace winnow::test {

// Makes the n-th allocation after its construction, in any thread, throw std::bad_alloc once during its lifetime. Only
// one such object may exist at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool has_happened() const;
};

}  // namespace winnow::test
