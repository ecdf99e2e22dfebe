// Keys on their way into pages. Where a head has error feedback (kernels/code_feedback.h), those that become codes are
// gathered first: rows are coded side by side.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/code_feedback.h"
#include "winnow/entry_type.h"

namespace winnow {

// What was written is in its place when the writer is flushed or destroyed.
class KeyWriter {
 public:
  // feedback: of these keys; null: every number is rounded by itself. Outlives the writer.
  KeyWriter(const kernels::CodeFeedback* feedback, int key_dim) : feedback_(feedback), key_dim_(key_dim) {}
  ~KeyWriter() { flush(); }
  KeyWriter(const KeyWriter&) = delete;
  KeyWriter& operator=(const KeyWriter&) = delete;

  // One row; src may be written over as soon as this returns.
  void write(EntryType from, EntryType to, const std::byte* src, std::byte* dst);
  void flush();

 private:
  const kernels::CodeFeedback* feedback_;
  int key_dim_;
  EntryType type_ = EntryType::kR4;  // of what waits
  std::vector<float> rows_;          // [kFeedbackRows][key_dim]
  std::vector<std::byte*> targets_;
};

}  // namespace winnow
