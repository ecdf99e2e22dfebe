#include "cache/key_writer.h"

#include <algorithm>

#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/rows.h"

namespace winnow {

KeyWriter::KeyWriter(const kernels::CodeFeedback* feedback, const std::byte* origin, int key_dim)
    : feedback_(feedback), origin_(origin), key_dim_(key_dim) {
  if (feedback == nullptr && origin == nullptr) return;
  const auto n = static_cast<std::size_t>(key_dim);
  rows_.resize(kernels::kFeedbackRows * n);
  targets_.reserve(kernels::kFeedbackRows);
  if (origin == nullptr) return;
  own_.resize(n);
  other_.resize(n);
  kernels::load_row(EntryType::kF16, origin, own_.data(), key_dim);
}

void KeyWriter::reserve_for(const kernels::HeadEntries& entries) {
  if (std::none_of(entries.runs.begin(), entries.runs.end(),
                   [](const kernels::EntryRun& run) { return run.origin != nullptr; })) {
    return;
  }
  const auto n = static_cast<std::size_t>(key_dim_);
  rows_.resize(kernels::kFeedbackRows * n);
  other_.resize(n);
}

void KeyWriter::write(EntryType from, const std::byte* from_origin, EntryType to, const std::byte* src,
                      std::byte* dst) {
  const std::byte* to_origin = kernels::is_coded(to) ? origin_ : nullptr;
  const bool is_moved = from_origin != to_origin;
  const bool waits = feedback_ != nullptr && kernels::code_bits(to) > 0;
  if (!is_moved && (!waits || from == to)) return kernels::convert_row(from, to, src, dst, key_dim_);

  const auto n = static_cast<std::size_t>(key_dim_);
  if (waits && to != type_) {
    flush();
    type_ = to;
  }
  float* row = rows_.data() + targets_.size() * n;
  kernels::load_row(from, src, row, key_dim_);
  if (is_moved) move(row, from_origin, to_origin);
  if (!waits) return kernels::store_row(to, row, dst, key_dim_);
  targets_.push_back(dst);
  if (targets_.size() == kernels::kFeedbackRows) flush();
}

void KeyWriter::move(float* row, const std::byte* from_origin, const std::byte* to_origin) {
  const auto n = static_cast<std::size_t>(key_dim_);
  if (from_origin != nullptr) {
    if (from_origin != loaded_) {
      kernels::load_row(EntryType::kF16, loaded_ = from_origin, other_.data(), key_dim_);
    }
    for (std::size_t i = 0; i < n; ++i) row[i] += other_[i];
  }
  if (to_origin != nullptr) {
    for (std::size_t i = 0; i < n; ++i) row[i] -= own_[i];
  }
}

void KeyWriter::flush() {
  if (targets_.empty()) return;
  kernels::store_coded_rows(type_, *feedback_, rows_.data(), targets_);
  targets_.clear();
}

}  // namespace winnow
