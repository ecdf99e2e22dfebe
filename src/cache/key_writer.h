// Keys on their way into pages: those that become codes are stored less their head's origin, and get it back when they
// come out of codes. Where a head has error feedback (kernels/entries/code_feedback.h), those that become codes are
// gathered first: rows are coded side by side.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/entries/code_feedback.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"

namespace winnow {

// What was written is in its place when the writer is flushed or destroyed.
class KeyWriter {
 public:
  // feedback: of these keys; null: every number is rounded by itself. Outlives the writer.
  // origin: [key_dim] float16, what this head's keys are stored less where they are coded; null: nothing
  // Takes all memory that rows of its own head need, and throws std::bad_alloc.
  KeyWriter(const kernels::CodeFeedback* feedback, const std::byte* origin, int key_dim);
  ~KeyWriter() { flush(); }
  KeyWriter(const KeyWriter&) = delete;
  KeyWriter& operator=(const KeyWriter&) = delete;

  // Likewise what rows of these entries need, where they are stored less other origins.
  void reserve_for(const kernels::HeadEntries& entries);

  // One row of type `from` that is stored less from_origin (null: nothing); src may be written over as soon as this
  // returns. Takes no memory.
  void write(EntryType from, const std::byte* from_origin, EntryType to, const std::byte* src, std::byte* dst);
  void flush();

 private:
  // A row that was stored less one origin becomes one that is stored less the other.
  void move(float* row, const std::byte* from_origin, const std::byte* to_origin);

  const kernels::CodeFeedback* feedback_;
  const std::byte* origin_;
  int key_dim_;
  std::vector<float> own_, other_;     // [key_dim] this head's origin, that of keys which come
  const std::byte* loaded_ = nullptr;  // what other_ is
  EntryType type_ = EntryType::kR4;    // of what waits
  std::vector<float> rows_;            // [kFeedbackRows][key_dim]
  std::vector<std::byte*> targets_;
};

}  // namespace winnow
