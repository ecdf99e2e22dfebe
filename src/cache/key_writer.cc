#include "cache/key_writer.h"

#include "kernels/rotated_codes.h"
#include "kernels/rows.h"

namespace winnow {

void KeyWriter::write(EntryType from, EntryType to, const std::byte* src, std::byte* dst) {
  if (feedback_ == nullptr || from == to || kernels::code_bits(to) == 0) {
    return kernels::convert_row(from, to, src, dst, key_dim_);
  }
  if (to != type_) flush();
  type_ = to;
  const auto n = static_cast<std::size_t>(key_dim_);
  if (rows_.empty()) rows_.resize(kernels::kFeedbackRows * n);
  kernels::load_row(from, src, rows_.data() + targets_.size() * n, key_dim_);
  targets_.push_back(dst);
  if (targets_.size() == kernels::kFeedbackRows) flush();
}

void KeyWriter::flush() {
  if (targets_.empty()) return;
  kernels::store_coded_rows(type_, *feedback_, rows_.data(), targets_);
  targets_.clear();
}

}  // namespace winnow
