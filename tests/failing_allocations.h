// Allocations by operator new that fail on request. Linking this replaces operator new everywhere in a program: for
// test programs of their own. What is taken with malloc does not fail, nor what ggml, libllama and oneDNN take, which
// leave themselves damaged where it does.
#pragma once

#include <cstdint>

namespace winnow::test {

// While it lives the n-th allocation from its making on, in whatever thread, throws std::bad_alloc, once. One at a
// time.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool has_happened() const;
};

}  // namespace winnow::test
