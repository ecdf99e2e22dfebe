// A writer of keys into pages. A key is quantised minus its head's origin, which is added again when it is dequantised.
// If a head has error feedback (kernels/entries/code_feedback.h), keys are gathered before they are quantised, since it
// quantises rows side by side.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/entries/code_feedback.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"

namespace winnow {

// Rows are in their place once the writer is flushed or destroyed.
class KeyWriter {
 public:
  // Takes all memory that rows of its own head need, and throws std::bad_alloc.
  //   feedback: the error feedback of these keys, which outlives the writer; null: every number is rounded by itself
  //   origin: [key_dim] float16, subtracted from this head's keys where they are quantised; null: none
  KeyWriter(const kernels::CodeFeedback* feedback, const std::byte* origin, int key_dim);
  ~KeyWriter() { flush(); }
  KeyWriter(const KeyWriter&) = delete;
  KeyWriter& operator=(const KeyWriter&) = delete;

  // Takes the memory that rows of these entries need if they are stored minus other origins.
  void reserve_for(const kernels::HeadEntries& entries);

  // Writes one row of type `from` that is stored minus from_origin (null: none); src may be overwritten as soon as this
  // returns. Takes no memory.
  void write(EntryType from, const std::byte* from_origin, EntryType to, const std::byte* src, std::byte* dst);
  void flush();

 private:
  // Turns a row that is stored minus one origin into one that is stored minus the other.
  void move(float* row, const std::byte* from_origin, const std::byte* to_origin);

  const kernels::CodeFeedback* feedback_;
  const std::byte* origin_;
  int key_dim_;
  std::vector<float> own_, other_;     // [key_dim] this head's origin, the origin of source keys
  const std::byte* loaded_ = nullptr;  // the origin that other_ holds
  EntryType type_ = EntryType::kR4;    // of the gathered rows
  std::vector<float> rows_;            // [kFeedbackRows][key_dim]
  std::vector<std::byte*> targets_;
};

}  // namespace winnow
